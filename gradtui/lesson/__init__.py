"""What is taught: question packs and a learner's progress.

`questions` reads packs (the lesson's own is in `day15`), `progress` has answers and when each question comes back,
kept in a `progress_file`, `words` a waiting time as text.
"""
