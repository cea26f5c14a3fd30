"""`gradtui exec SCRIPT` behaves as `python SCRIPT` in everything that a script can see or a caller can tell."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner
from script.programs import plain, recorded

from gradtui.cli.exec import exec_script
from gradtui.errors import USAGE, Failure
from gradtui.script.plan import INJECTED, VARIABLE


@dataclass(frozen=True)
class Case:
    """A script, how it is started, and what it reads."""

    source: str
    arguments: tuple[str, ...] = ("script.py", "a", "--epochs", "3", "--", "-x")
    given: str = ""
    variables: tuple[tuple[str, str], ...] = ()


CASES = {
    "its main module": Case(
        """
        import __main__, sys
        print(__name__, __file__, __spec__, __doc__, __package__, __builtins__, type(__loader__).__name__)
        print(sorted(vars(__main__)), sys.modules["__main__"] is __main__, sys.argv, sys.flags, sys.orig_argv[1:])
        """
    ),
    "its path and environment": Case(
        """
        import os, sys
        print(sys.path, "sitecustomize" in sys.modules, sys.meta_path[-3:], sorted(os.environ))
        print(os.environ.get("PYTHONPATH"), [path for path in sys.path_importer_cache if "inject" in path])
        """
    ),
    "a PYTHONPATH of its own": Case(
        """
        import os, sys, helper, sitecustomize
        print(os.environ["PYTHONPATH"], sys.path, helper.x, sitecustomize.who, sitecustomize.__file__)
        """,
        variables=(("PYTHONPATH", "own:other"),),
    ),
    "a process that it starts": Case(
        """
        import os, subprocess, sys
        code = "import os, sys; print(sorted(os.environ), 'gradtui' in sys.modules, sys.path)"
        subprocess.run([sys.executable, "-c", code], check=True)
        """
    ),
    "a package": Case("", ("-m", "package.train", "a", "-m")),
    "a package's main module": Case("", ("-m", "package", "b")),
    "an exit code": Case("import sys\nprint(sys.exit.__name__)\nsys.exit(3)"),
    "an exit message": Case("import sys\nsys.exit('no such data set')"),
    "an uncaught exception": Case("def f():\n    raise KeyError('lr')\n\nf()"),
    "a syntax error": Case("print('never')\nlr = = 3"),
    "help of argparse": Case(
        """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--epochs", type=int)
        parser.parse_args(["--help"])
        """
    ),
    "an argument that argparse refuses": Case(
        "import argparse\nargparse.ArgumentParser().parse_args()", ("script.py", "--lr", "3")
    ),
    "an end without clean-up": Case("import os\nprint('x', flush=True)\nos._exit(4)"),
    "handlers at exit": Case("import atexit\natexit.register(print, 'first')\natexit.register(print, 'second')"),
    "ctrl+c": Case("raise KeyboardInterrupt"),
    "a deadly signal": Case(f"import os\nprint('x', flush=True)\nos.kill(os.getpid(), {signal.SIGTERM})"),
    "questions": Case("print(input('how many? ') * 2)", given="12\n"),
    "pickles of its own classes": Case(
        """
        import pickle
        class Config:
            lr = 3
        data = pickle.dumps(Config())
        print(data, type(pickle.loads(data)) is Config)
        """
    ),
    "a data file beside it": Case(
        "from pathlib import Path\nprint(Path('own/helper.py').read_text(), Path(__file__).resolve().name)"
    ),
    "workers": Case(
        """
        import multiprocessing, sys
        class Config:
            lr = 3
        def work(config):
            watched = "gradtui" in sys.modules and multiprocessing.get_start_method() != "fork"
            return config.lr, __name__, sys.argv, sys.path, watched
        if __name__ == "__main__":
            for method in ("spawn", "fork"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(pool.map(work, [Config()]))
        """
    ),
    "a directory": Case("", ("package", "c")),
    "a directory without a main module": Case("", ("own",)),
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a package, and modules that are found by PYTHONPATH."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "numbers.py").write_text("ten = 10\n")
    text = (
        "import sys\nfrom .numbers import ten\nprint(__name__, __spec__.name, __package__, sys.argv, sys.path)\n"
    )
    (package / "train.py").write_text(text)
    (package / "__main__.py").write_text(text.replace(".numbers", "package.numbers").replace("__spec__.name", "1"))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "helper.py").write_text("x = 1\n")
    (tmp_path / "own" / "sitecustomize.py").write_text("who = 'the one of its own'\n")
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="what is compared is posix's")
@pytest.mark.parametrize("name", CASES)
def test_a_script_cannot_tell_gradtui_from_python(name: str, directory: Path) -> None:
    case = CASES[name]
    (directory / "script.py").write_text(dedent(case.source))
    more = {"given": case.given, "variables": dict(case.variables)}
    expected = plain(case.arguments, directory, **more)
    done = recorded(case.arguments, directory, **more)
    assert (done.code, done.out, done.own_err) == (expected.code, expected.out, expected.own_err)
    assert done.out or done.own_err


def test_a_script_without_torch_does_not_load_it_and_is_told_so(directory: Path) -> None:
    (directory / "script.py").write_text("import sys\nprint('torch' in sys.modules, 'numpy' in sys.modules)")
    done = recorded(["script.py"], directory)
    assert done.out.split() == ["False", "False"]
    assert done.of_gradtui == ["gradtui: nothing was recorded: the script did not import torch"]


def test_what_starts_the_recording_is_taken_out_of_the_environment(directory: Path) -> None:
    (directory / "script.py").write_text("import os\nprint(os.environ)")
    done = recorded(["script.py"], directory)
    assert VARIABLE not in done.out
    assert str(INJECTED) not in done.out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["missing.py"], "missing.py is not there"),
        (["--metrics", "speed", "x.py"], "there is no metric 'speed'; there are: stream_grad"),
        (["--run", "nowhere/x.gradtui", "x.py"], "nowhere is not there"),
        (["--run", "x.py", "x.py"], "the file exists"),
    ],
)
def test_a_wrong_argument_is_answered_with_a_sentence(
    arguments: list[str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.py").write_text("print(1)")
    result = CliRunner().invoke(exec_script, ["--headless", *arguments])
    assert isinstance(result.exception, Failure)
    assert named in str(result.exception)
    assert result.exception.code == USAGE
