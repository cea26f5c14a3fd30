"""The quiz: question packs (`bank`), progress on disk (`progress`) and waiting times in words (`words`)."""
