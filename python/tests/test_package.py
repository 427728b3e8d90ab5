"""The package as a package: without torch, without a driver, beside other copies, and what
its libraries need and export.  Each case is a process of its own."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tileglu

PACKAGE = Path(tileglu.__file__).parent


def python(code, folder=PACKAGE.parent, **environment):
    """Output of a new interpreter that finds the package in `folder`."""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(folder), **environment}, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout.strip()


def copy_of(package, folder):
    return Path(shutil.copytree(package, folder / "tileglu",
                                ignore=shutil.ignore_patterns("__pycache__")))


def tool(*command):
    if not shutil.which(command[0]):
        pytest.skip(f"skipped: no {command[0]}")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def compile_library(folder, name, source, *options):
    if not shutil.which("cc"):
        pytest.skip("skipped: no cc")
    path = folder / name
    subprocess.run(["cc", "-shared", "-fPIC", *options, "-x", "c", "-", "-o", str(path)],
                   input=source, text=True, check=True)
    return path


# ---- without torch, without a driver (H23, H68) ----

def test_import_needs_no_torch():
    out = python("""
import sys
sys.modules["torch"] = None  # as where it is not installed
import tileglu
print(tileglu.__version__, tileglu.library_version(), tileglu.device_info("cpu")["backend"])
assert tileglu.library_path().is_file() and "glu" in dir(tileglu)
try:
    tileglu.glu
except ImportError as error:
    print("torch" in str(error))
""")
    assert out == f"{tileglu.__version__} {tileglu.__version__} cpu\nTrue"


def test_import_does_not_import_torch():
    out = python("import sys, tileglu; print('torch' in sys.modules); tileglu.glu; "
                 "print('torch' in sys.modules)")
    assert out == "False\nTrue"


def test_operators_are_there_where_torch_was_imported_first():
    assert python("import torch, tileglu; print(torch.ops.tileglu.glu.default)") == \
        "tileglu.glu.default"


def test_no_driver_is_started():
    """Neither import nor CPU work opens libcuda, and where there is one it stays untouched."""
    out = python("""
import ctypes, torch, tileglu
x, w, d = torch.randn(3, 8), torch.randn(4, 8), torch.randn(8, 4)
tileglu.glu(x, w, w)
tileglu.mlp(x, w, w, d)
tileglu.device_info("cpu")
print("libcuda.so" in open("/proc/self/maps").read(), torch.cuda.is_initialized())
try:
    driver = ctypes.CDLL("libcuda.so.1")
    print(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())))  # 3: not initialised
except OSError:
    print(3)
""")
    assert out == "False False\n3"


# ---- versions (H68) ----

def test_another_library_version_is_named(tmp_path):
    package = copy_of(PACKAGE, tmp_path)
    (package / "libtileglu.so").unlink()
    compile_library(package, "libtileglu.so", """
        unsigned tglu_version(void) { return 909; }
        const char *tglu_version_string(void) { return "0.9.9"; }""")
    out = python("""
try:
    import tileglu
except ImportError as error:
    print(error)
""", tmp_path)
    assert f"built for libtileglu {tileglu.__version__}" in out
    assert "found libtileglu 0.9.9" in out and str(package / "libtileglu.so") in out


def test_a_missing_or_incomplete_library_is_named(tmp_path):
    package = copy_of(PACKAGE, tmp_path)
    (package / "libtileglu.so").unlink()
    code = "try:\n    import tileglu\nexcept ImportError as error:\n    print(error)"
    assert "libtileglu.so" in python(code, tmp_path)
    major, minor, patch = map(int, tileglu.__version__.split("."))
    compile_library(package, "libtileglu.so", f"""
        unsigned tglu_version(void) {{ return {major * 10000 + minor * 100 + patch}; }}
        const char *tglu_version_string(void) {{ return "{tileglu.__version__}"; }}""")
    assert re.search(r"needs tglu_\w+, which .*libtileglu.so lacks", python(code, tmp_path))


def test_an_old_torch_is_named(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("__version__ = '2.3.1+cpu'\n")
    out = python(f"""
import sys
sys.path.append({str(PACKAGE.parent)!r})
import tileglu
try:
    tileglu.glu
except ImportError as error:
    print(error)
""", tmp_path)
    assert out == f"tileglu {tileglu.__version__} needs torch 2.4 or newer and found 2.3.1+cpu"


# ---- two copies in one process (H68) ----

TWO_COPIES = """
import importlib, sys, torch
x, w = torch.randn(3, 8), torch.randn(4, 8)
import tileglu
want = tileglu.glu(x, w, w)
first = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("tileglu")}
sys.path.insert(0, sys.argv[1] if len(sys.argv) > 1 else OTHER)
try:
    import tileglu as second
    assert second.__file__ != first["tileglu"].__file__
    assert torch.equal(second.glu(x, w, w), want)
    assert torch.equal(first["tileglu"].glu(x, w, w), want)
    with torch.profiler.profile():
        assert torch.equal(second.glu(x, w, w), want)
    print("both work")
except ImportError as error:
    print(error)
"""


def test_a_second_copy_of_this_version_works(tmp_path):
    copy_of(PACKAGE, tmp_path)
    assert python(f"OTHER = {str(tmp_path)!r}\n" + TWO_COPIES) == "both work"


def test_a_second_copy_of_another_version_is_refused(tmp_path):
    package = copy_of(PACKAGE, tmp_path)
    init = package / "__init__.py"
    init.write_text(init.read_text().replace("__version__ = _core.version",
                                             "__version__ = '0.0.7'"))
    out = python(f"OTHER = {str(tmp_path)!r}\n" + TWO_COPIES)
    assert f"tileglu {tileglu.__version__} at {PACKAGE / '__init__.py'}" in out
    assert f"tileglu 0.0.7 at {init}" in out


def test_another_build_with_global_symbols(tmp_path):
    """A library that exports our names and was loaded first with RTLD_GLOBAL does not get our
    library's calls to itself, nor the extension's."""
    hijacker = compile_library(tmp_path, "other.so", """
        #include <stdlib.h>
        void tglu_glu_desc_init(void *desc) { (void)desc; abort(); }
        void tglu_run_args_init(void *args) { (void)args; abort(); }
        unsigned tglu_version(void) { abort(); }
        int tglu_glu_run(const void *a, const void *b) { (void)a, (void)b; abort(); }""")
    python(f"""
import ctypes
ctypes.CDLL({str(hijacker)!r}, mode=ctypes.RTLD_GLOBAL)
import tileglu, torch
x, w, d = torch.randn(3, 8), torch.randn(4, 8), torch.randn(8, 4)
h = torch.nn.functional.silu(x @ w.T) * (x @ w.T)
torch.testing.assert_close(tileglu.glu(x, w, w), h)
torch.testing.assert_close(tileglu.mlp(x, w, w, d), h @ d.T)
""")


# ---- the binaries ----

def test_the_library_serves_c(tmp_path):
    library = ctypes.CDLL(str(tileglu.library_path()))
    library.tglu_version_string.restype = ctypes.c_char_p
    assert library.tglu_version_string().decode() == tileglu.__version__


def test_exports_and_needs():
    for name, exported in [("libtileglu.so", r"tglu_[a-z]\w*"), ("_core.abi3.so", "PyInit__core")]:
        path = str(PACKAGE / name)
        symbols = [line.split()[-1] for line in
                   tool("nm", "-D", "--defined-only", path).splitlines()]
        assert symbols, name
        strange = [symbol for symbol in symbols if not re.fullmatch(exported, symbol)
                   and not symbol.startswith(("_init", "_fini", "_edata", "_end", "__bss_start"))]
        assert not strange, (name, strange)
        dynamic = tool("readelf", "-d", path)
        paths = re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic)
        assert paths == (["$ORIGIN"] if name == "libtileglu.so" else [])
        needed = re.findall(r"NEEDED.*\[(.*)\]", dynamic)
        unknown = [lib for lib in needed if not (PACKAGE / lib).exists() and not re.match(
            r"(libc|libm|libdl|libpthread|ld-linux.*)\.so", lib)]
        assert not unknown, (name, unknown)


def test_only_the_limited_api_is_used():
    """Private names and those that a later limited API brought would tie the file to one
    Python."""
    undefined = tool("nm", "-D", "--undefined-only", str(PACKAGE / "_core.abi3.so"))
    names = re.findall(r"\b(_?Py\w+)", undefined)
    assert len(names) > 20
    private = {name for name in names if name.startswith("_Py")} - {
        "_Py_NoneStruct", "_Py_TrueStruct", "_Py_FalseStruct", "_Py_NotImplementedStruct",
        "_Py_Dealloc"}
    assert not private
    assert not {"PyObject_Vectorcall", "PyObject_VectorcallMethod", "Py_IsFinalizing"} & set(names)


def test_size():
    size = sum(path.stat().st_size for path in PACKAGE.iterdir() if path.is_file())
    assert size < 10e6, f"{size} bytes"
