"""
# Sizes for a launch

What several launchers work out for every call. A small call takes as long as Python needs to launch it, so this is
plain arithmetic: `triton.next_power_of_2` and `triton.cdiv` spend microseconds on a check for constexpr arguments.
"""


def power_of_2_up_to(most, number):
    """The smallest power of two that is at least `number`, or `most` if that is smaller."""
    power = 1
    while power < number and power < most:
        power *= 2
    return power
