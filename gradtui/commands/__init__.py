"""Commands that have grown too long for cli.py; each module holds a few that belong together."""
