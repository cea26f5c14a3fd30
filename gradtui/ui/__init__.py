"""The screen: Textual only. It reads run files and speaks to the engine; it never loads torch."""
