"""`python -m gradtui` is the console script."""

from gradtui.cli.main import main

if __name__ == "__main__":
    main()
