"""A machine from a file: fields that it leaves out are as in the catalog, and what is wrong is said in one sentence."""

import pytest

import hybridlab as hl
from hybridlab.core.what.catalog import machine
from hybridlab.core.what.machines import machine_of, read, written

FULL = "node = 4\npeak = 2e14\nmemory = 40e9\nbandwidth = 1e12\ninside = 2e11\n"


@pytest.fixture
def file(tmp_path):
    def made(text, name="mine.toml"):
        path = tmp_path / name
        path.write_text(text, "utf-8")
        return path

    return made


def test_what_a_file_leaves_out_is_as_in_the_catalog(file):
    mine = read(file('like = "h200"\nshare = 0.6\ninside = 3.8e11\n'))
    h200 = machine("h200")
    assert (mine.name, mine.share, mine.inside) == ("mine", 0.6, 3.8e11)
    assert (mine.peak, mine.node, mine.across, mine.latency) == (h200.peak, h200.node, h200.across, h200.latency)
    assert mine.sources["peak"] == h200.sources["peak"] and mine.sources["share"].endswith("mine.toml")


def test_a_file_alone_describes_a_machine_too(file):
    mine = read(file(FULL))
    assert (mine.node, mine.peak, mine.memory, mine.across, mine.latency) == (4, 2e14, 40e9, 2e11, (0.0, 0.0))
    other = read(file(FULL + 'latency = [1e-6, 2e-6]\nacross = 1e10\nlabel = "ours"\n'))
    assert (other.across, other.latency, other.label) == (1e10, (1e-6, 2e-6), "ours")


def test_another_memory_is_taken_as_given_although_the_driver_reports_more(file):
    assert machine("h100").capacity > 80e9
    assert read(file('like = "h100"\nmemory = 40e9\n')).capacity == 40e9


@pytest.mark.parametrize(
    "text, said",
    [
        ("share = 1.5\n" + FULL, "share = 1.5 is more than the whole"),
        ("share = -1\n" + FULL, "share = -1 is not a number of 0 or more"),
        ("peak = true\n", "peak = True is not a number above 0"),
        ("peak = inf\n", "peak = inf is not a number above 0"),
        ('peak = "fast"\n', "peak = 'fast' is not a number above 0"),
        ("node = 2.5\n", "node = 2.5 is not a whole number"),
        ("latency = 1e-6\n", "is not two numbers of seconds"),
        ("label = 3\n", "label = 3 is not a string"),
        ("sources = 3\n", "sources = 3 is not a table"),
        ("peek = 1\n", "a machine has no 'peek'. Choose peak."),
        ('lke = "h100"\n', "a machine has no 'lke'. Choose like."),
        ('like = "h300"\n', "there is no machine 'h300'. Choose like = one of v100, "),
        ("like = 3\n", "there is no machine 3"),
        ('like = ["h100"]\n', "there is no machine ['h100']"),
        ('like = "h100"\npod = 2\n', "a pod of 2 devices does not hold whole nodes of 8. Give pod = 0 or whole nodes."),
        ('like = "h100"\noversubscription = 0\n', "oversubscription = 0 is less than 1. Give 1 or more."),
        ("node = 2\n", "it lacks peak and memory and bandwidth and inside and across. Add them, or like ="),
        ("node = \n", "Give a TOML file"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_sentence(file, text, said):
    path = file(text)
    with pytest.raises(ValueError) as error:
        machine_of(str(path))
    told = str(error.value)
    assert told.startswith(f"machine='{path}' is invalid: ") and said in told and "\n" not in told


def test_another_ending_is_told_what_a_file_is(tmp_path):
    with pytest.raises(ValueError, match="choose one of v100, .*, or give a TOML file that describes one"):
        machine_of("mine.yaml")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match="No such file or directory. Give a TOML file"):
        machine_of(f"{tmp_path}/none.toml")


def test_what_is_written_is_read(file):
    fields = {"label": "ours", "peak": 1.5e14, "latency": (1e-6, 2e-6), "share": 0.55}
    mine = read(file(written(fields, "a100", {"share": "measured"})))
    assert {name: getattr(mine, name) for name in fields} == fields and mine.bandwidth == machine("a100").bandwidth
    assert "share = 0.55  # measured\n" in written(fields, "a100", {"share": "measured"})


@pytest.mark.parametrize("name", ["a100", "h200", "b200"])
def test_a_plan_for_a_file_is_that_for_its_machine_with_its_share(file, name):
    """Matmuls at a higher share of the peak take less time; a file that says nothing changes nothing."""
    ask = lambda kind: hl.plan("gpt-7.5b", kind, gpus=32, batch=64)
    same, quick = ask(str(file(f'like = "{name}"\n'))), ask(str(file(f'like = "{name}"\nshare = 0.9\n', "quick.toml")))
    known = ask(name)
    assert float(same.best.step.total) == float(known.best.step.total) > float(quick.best.step.total)
    assert (same.room, len(same.order), same.error) == (known.room, len(known.order), known.error)
    assert "GEMMs at 90% of the peak" in quick.assumed
    other = hl.plan("gpt-7.5b", str(file(f'like = "{name}"\nshare = 0.9\n')), 32, 64, software="megatron-2022")
    assert "GEMMs at 90% of the peak" in other.assumed


def test_a_file_with_the_name_of_a_machine_is_another_machine(file):
    mine = hl.plan("gpt-7.5b", str(file(FULL, "h100.toml")), gpus=32, batch=64)
    assert mine.error != hl.plan("gpt-7.5b", "h100", gpus=32, batch=64).error
