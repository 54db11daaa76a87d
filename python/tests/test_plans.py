"""Policies: ours give what the program gives, functions of Python take part next to them."""

import json
import os
import subprocess

import numpy as np
import pytest

import numaloc

MACHINE = "numa:4 core:4 pu:1"


def answered(*arguments):
    done = subprocess.run([os.environ["NUMALOC"], "--json", *arguments], capture_output=True, check=True, text=True)
    return json.loads(done.stdout)


def heaviest_first(matrix, machine):
    """Tasks that communicate most fill the machine in order."""
    place = np.empty(len(matrix), dtype=int)
    place[np.argsort(-matrix.sum(axis=0), kind="stable")] = np.arange(len(matrix)) % machine.pus
    return place


def test_mappings_are_those_of_the_program(synthetic, tmp_path):
    matrix = numaloc.Profile.open(synthetic).matrix()
    file = tmp_path / "matrix.csv"
    np.savetxt(file, matrix, delimiter=",", fmt="%d")
    expected = answered("map", str(file), "--topology", MACHINE, "--policy", "all")
    rows = {row["policy"]: row for row in expected["policies"]}
    found = numaloc.map(matrix, MACHINE, "all")
    assert len(found) >= 10 and {m.policy for m in found} | set(found.failed) == set(rows)
    for mapping in found:
        assert mapping.pu.tolist() == rows[mapping.policy]["mapping"]
        assert mapping.cost == rows[mapping.policy]["cost"]


def test_a_function_takes_part_next_to_our_policies(synthetic):
    matrix = numaloc.Profile.open(synthetic).matrix()
    found = numaloc.map(matrix, MACHINE, [heaviest_first, "scatter", "numaloc"])
    assert [m.policy for m in found] == ["heaviest_first", "scatter", "numaloc"]
    assert found[0].pu.tolist() == heaviest_first(matrix + matrix.T, numaloc.Machine(MACHINE)).tolist()
    assert found.best().policy == "numaloc"
    assert found[0].cost >= found[0].lower_bound > 0


def test_a_function_receives_a_symmetric_matrix_and_the_machine():
    seen = {}

    def policy(matrix, machine):
        seen["matrix"], seen["machine"] = matrix, machine
        return range(len(matrix))

    amounts = np.array([[0, 3, 0], [1, 0, 0], [0, 5, 0]], dtype=float)
    mapping = numaloc.map(amounts, MACHINE, policy)
    np.testing.assert_array_equal(seen["matrix"], amounts + amounts.T)
    assert isinstance(seen["machine"], numaloc.Machine) and seen["machine"].pus == 16
    assert mapping.pu.tolist() == [0, 1, 2] and mapping.node.tolist() == [0, 0, 0]
    assert mapping.remote_share == 0


def test_what_a_function_raises_is_the_cause():
    def broken(matrix, machine):
        raise RuntimeError("no idea")

    with pytest.raises(numaloc.NumalocError, match="policy broken: RuntimeError: no idea") as caught:
        numaloc.map(np.ones((4, 4)), MACHINE, broken)
    assert isinstance(caught.value.__cause__, RuntimeError)
    several = numaloc.map(np.ones((4, 4)), MACHINE, [broken, "packed"])
    assert [m.policy for m in several] == ["packed"] and "no idea" in several.failed["broken"]


@pytest.mark.parametrize(
    "answer, why",
    [
        ([0, 0, 0, 0], "more than 1 of 4"),
        ([0, 1, 2], "3 PUs for 4 tasks"),
        ([0, 1, 2, 99], "PU|L#99"),
        ([0, 1, 2, -1], "task 3"),
        ([0, 1, 2, 2.5], "__index__"),
        (None, "not iterable"),
    ],
)
def test_an_answer_that_is_no_mapping_is_refused(answer, why):
    def policy(matrix, machine):
        return answer

    with pytest.raises(numaloc.NumalocError, match=why):
        numaloc.map(np.ones((4, 4)), MACHINE, policy)


def test_functions_may_map_themselves_and_be_used_again():
    def nested(matrix, machine):
        inner = numaloc.map(matrix, machine, lambda m, _: list(reversed(range(len(m)))))
        return inner.pu

    for _ in range(3):
        assert numaloc.map(np.ones((4, 4)), MACHINE, nested).pu.tolist() == [3, 2, 1, 0]


def test_plans_are_those_of_the_program(synthetic, tmp_path):
    plan = numaloc.plan(synthetic, MACHINE, "deloc", "mixed")
    path = plan.save(tmp_path / "ours.json", anyway=True)
    theirs = tmp_path / "theirs.json"
    arguments = ["--machine", MACHINE, "--threads", "deloc", "--pages", "mixed", "--anyway", "-o", str(theirs)]
    answered("plan", str(synthetic), *arguments)
    assert open(path).read() == theirs.read_text()
    with pytest.raises(numaloc.NumalocError, match="it exists"):
        plan.save(path, anyway=True)
    assert plan.save(path, force=True, anyway=True) == path


def test_the_default_is_that_of_the_program(synthetic, tmp_path):
    plan = numaloc.plan(synthetic, MACHINE)
    theirs = tmp_path / "theirs.json"
    said = answered("plan", str(synthetic), "--machine", MACHINE, "-o", str(theirs))
    assert plan.text == theirs.read_text()
    assert plan.worth == said["worth"] and not plan.loses
    assert plan.remote_access_share == said["page_policies"][-1]["remote_share"]


def test_a_plan_that_loses_is_refused(synthetic, tmp_path):
    # All on one node, without a gain in locality.
    plan = numaloc.plan(synthetic, MACHINE, "packed", "random")
    assert plan.loses and plan.worth["as_it_is"]["seconds"] < plan.worth["plan"]["seconds"]
    with pytest.raises(numaloc.NumalocError, match="anyway=True"):
        plan.save(tmp_path / "plan.json")
    assert not (tmp_path / "plan.json").exists()


def test_a_function_makes_a_plan_that_the_program_runs(traced, ring, tmp_path):
    plan = numaloc.plan(traced, "this", lambda matrix, machine: [i % machine.pus for i in range(len(matrix))])
    assert plan.policy == "<lambda>" and len(plan.threads) == len(plan.pu) >= 4
    assert plan.to_dict()["provenance"]["thread_policy"] == "<lambda>"
    assert 0 <= plan.remote_access_share <= 1
    done = numaloc.run([ring], plan, options=["--quiet"], env={**os.environ, "OMP_NUM_THREADS": "4"})
    assert done["status"] in (0, 3)


def test_functions_cannot_take_the_names_of_policies(synthetic):
    def packed(matrix, machine):
        return range(len(matrix))

    with pytest.raises(numaloc.NumalocError, match="another __name__"):
        numaloc.map(np.ones((2, 2)), MACHINE, packed)
    with pytest.raises(numaloc.NumalocError, match="joint"):
        numaloc.plan(synthetic, MACHINE, heaviest_first, "joint")
    with pytest.raises(numaloc.NumalocError, match="is no policy"):
        numaloc.map(np.ones((2, 2)), MACHINE, [3])
    with pytest.raises(numaloc.NumalocError, match="unknown thread policy"):
        numaloc.map(np.ones((2, 2)), MACHINE, "packd")
    with pytest.raises(numaloc.NumalocError, match="2 x 3"):
        numaloc.map(np.ones((2, 3)), MACHINE)
    with pytest.raises(numaloc.NumalocError, match="one policy of each kind"):
        numaloc.plan(synthetic, MACHINE, "all")
    assert "deloc" in numaloc.policies() and "locality" in numaloc.policies("pages")
