

@pytest.mark.parametrize("unit", [1.4e-9, 1 / 3 * 1e-9, 1e-300, 1, 2.5, 7e17, 1e300])
def test_a_unit_of_any_size_makes_the_same_timeline(unit):
    """Rounded to a nanosecond, 1.4e-9 would take 1e-9, and 1e-300 no time at all."""
    found = simulate(schedule("1f1b", 2, 2), Costs(F=unit, B=2 * unit, latency=unit / 8))
    assert found.length / unit == pytest.approx(9.25, rel=1e-3)


def test_costs_that_no_whole_number_of_ticks_can_hold_are_refused():
    for far in (dict(F=1e-20, B=1), dict(F=1, B=1e20), dict(F=1, latency=1e-17)):
        with pytest.raises(ValueError, match="too far apart to be simulated"):
            simulate(schedule("1f1b", 2, 2), Costs(**far))
