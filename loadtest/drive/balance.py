"""In which order the arms of a block run: balanced, so that no arm always goes first or always follows another."""

from __future__ import annotations

from collections.abc import Sequence


def orders(count: int) -> list[tuple[int, ...]]:
    """Return orders of so many arms in which each stands at each place, and follows each other arm, equally often.

    A Williams design (E. J. Williams, Australian Journal of Scientific Research A 2, 1949): as many orders as arms,
    twice as many for an odd number of them. An order and its mirror image stand next to each other, so that a steady
    drift cancels after every two blocks. Two arms: A B, B A.
    """
    base = [0]  # 0, 1, n − 1, 2, n − 2, …: neighbours differ by every amount once
    low, high = 1, count - 1
    while low <= high:
        base.append(low)
        if low < high:
            base.append(high)
        low, high = low + 1, high - 1
    turned = [tuple((place + turn) % count for place in base) for turn in range(count)]
    found: list[tuple[int, ...]] = []
    for order in turned:
        for one in (order, order[::-1]):
            if one not in found:
                found.append(one)
    return found


def in_order(arms: Sequence[str], number: int) -> list[str]:
    """Return the arms in the order of this number, from 0; the numbers go round."""
    every = orders(len(arms))
    return [arms[place] for place in every[number % len(every)]]


def in_order_of_start(arms: Sequence[str], block: int) -> list[str]:
    """Return the arms in the order of their starts in a block.

    Pairs of an order and its mirror image follow each other; which of the two comes first follows the Thue–Morse
    sequence (A B, B A, B A, A B, …), so that neither a steady drift nor a bending one favours an arm.
    """
    every = orders(len(arms))
    pairs = max(1, len(every) // 2)
    number = 2 * (block // 2 % pairs) + block.bit_count() % 2
    return [arms[place] for place in every[number % len(every)]]
