"""The package as it is installed: what it declares is there, and it needs NumPy alone."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import numaloc
from numaloc import _numaloc


def test_the_stub_declares_what_is_compiled():
    stub = ast.parse(Path(numaloc.__file__).with_name("_numaloc.pyi").read_text())
    declared = {}
    for node in stub.body:
        if isinstance(node, ast.ClassDef):
            declared[node.name] = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            declared[node.name] = [argument.arg for argument in node.args.args]
        elif isinstance(node, ast.AnnAssign):
            declared[node.target.id] = None
    compiled = {name for name in dir(_numaloc) if not name.startswith("__")} | {"__version__"}
    assert set(declared) == compiled
    for name, parts in declared.items():
        found = getattr(_numaloc, name)
        if isinstance(parts, list):
            assert list(inspect.signature(found).parameters) == parts, name
        elif isinstance(parts, set) and not issubclass(found, Exception):
            own = {part for part in vars(found) if not part.startswith("__")}
            assert own == {part for part in parts if not part.startswith("__")}, name


def test_every_public_name_is_documented_and_typed():
    assert Path(numaloc.__file__).with_name("py.typed").exists()
    for name in numaloc.__all__:
        found = getattr(numaloc, name)
        if callable(found) and name != "Policy":
            assert inspect.getdoc(found), name


def test_only_numpy_is_needed_to_open_map_and_plan(synthetic):
    others = ["pandas", "pyarrow", "polars", "duckdb", "dask", "distributed"]
    script = (
        "import sys\n"
        f"for name in {others!r}: sys.modules[name] = None\n"
        "import numaloc\n"
        f"profile = numaloc.Profile.open({str(synthetic)!r})\n"
        "mapping = numaloc.map(profile.matrix(), 'numa:4 core:4 pu:1', ['numaloc', lambda m, _: range(len(m))]).best()\n"
        "assert mapping.policy == 'numaloc' and numaloc.plan(profile, 'numa:4 core:4 pu:1').threads\n"
        "profile.verdict(nodes=4), profile._repr_html_()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_hwloc_xml_is_read_by_a_process_of_its_own(tmp_path):
    file = tmp_path / "machine.xml"
    file.write_text("<topology><object type='Machine'></topology>")
    try:
        numaloc.Machine(str(file))
    except numaloc.NumalocError as error:
        assert "machine.xml" in str(error)
    else:
        raise AssertionError("it is no machine")


def test_outputs_are_complete_or_absent_and_replace_nothing(tmp_path):
    import pytest

    from numaloc._output import appearing

    path = tmp_path / "file"
    with pytest.raises(RuntimeError), appearing(str(path), force=False) as file:
        file.write(b"half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with appearing(str(path), force=False) as file:
        file.write(b"whole")
        assert not path.exists()
    # Somebody else writes it meanwhile.
    other = tmp_path / "other"
    with pytest.raises(numaloc.NumalocError, match="it exists"), appearing(str(other), force=False) as file:
        other.write_text("theirs")
    assert other.read_text() == "theirs" and path.read_text() == "whole"
    with pytest.raises(numaloc.NumalocError, match="No such file"), appearing(str(tmp_path / "no" / "x"), force=True):
        pass
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "other"]
