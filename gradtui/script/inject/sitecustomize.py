"""Imported by python itself before a script begins, because its directory stands first on PYTHONPATH.

It takes its own traces away (variable, path, its name in `sys.modules`), begins the recording and hands over to
the `sitecustomize` that would have been imported without it.
"""

import os
import sys
from importlib import util

_here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  (pathlib would cost the script its import)
sys.path[:] = [entry for entry in sys.path if entry != _here]
sys.path_importer_cache.pop(_here, None)
_plan = os.environ.pop("GRADTUI_EXEC", None)
if _plan is not None:
    try:
        # Wherever gradtui lies, the script need not be able to import it.
        _root = os.path.dirname(os.path.dirname(_here))  # noqa: PTH120
        _spec = util.spec_from_file_location("gradtui", os.path.join(_root, "__init__.py"))  # noqa: PTH118
        assert _spec is not None
        assert _spec.loader is not None
        sys.modules["gradtui"] = _gradtui = util.module_from_spec(_spec)
        _spec.loader.exec_module(_gradtui)

        from gradtui.script.child import begin

        begin(_plan)
    except Exception as error:
        sys.stderr.write(f"gradtui: nothing will be recorded: {type(error).__name__}: {error}\n")
del sys.modules["sitecustomize"]
# The next one on the path; where there is none, python expects just this error.
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
