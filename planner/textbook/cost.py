"""Money: from what an accelerator costs in an hour and what it yields, to a token, a request and a month."""

from planner.formula import formula


@formula("USD/h", source="barroso-2018", equation="section 6.1", validity="straight-line depreciation, no interest")
def owned_usd_per_hour(purchase_usd, amortisation_years, power_w, pue, usd_per_kwh):
    """What an hour of an accelerator costs that was bought: its share of the purchase, and its power at the site.

    >>> round(owned_usd_per_hour(30_000, 4, 700, 1.3, 0.12), 4)
    0.9648
    """
    return purchase_usd / (8766 * amortisation_years) + power_w * pue * usd_per_kwh / 1000


@formula("USD", source="openinfra-2025", validity="the price is that of all accelerators that work for the tokens")
def usd_per_mtok(usd_per_hour, seconds, tokens):
    """What a million tokens cost, where so many of them take so long.

    >>> round(usd_per_mtok(2.0 * 8, 1, 1000), 4)
    4.4444
    """
    return usd_per_hour * seconds * 1_000_000 / (3600 * tokens)


@formula("token/USD", source="openinfra-2025", validity="the reciprocal of the price of a token")
def tokens_per_usd(usd_per_hour, seconds, tokens):
    """Tokens that a dollar buys, where so many of them take so long.

    >>> tokens_per_usd(2.0, 1, 1000)
    1800000.0
    """
    return 3600 * tokens / (usd_per_hour * seconds)


@formula("USD", source="openinfra-2025")
def fleet_usd(accelerators, usd_per_hour, hours):
    """What accelerators cost in some time, used or not.

    >>> fleet_usd(1814, 2, 24)     # DeepSeek-V3 and R1 in a day, 226.75 nodes of eight on average
    87072
    """
    return accelerators * usd_per_hour * hours


@formula("1", source="openinfra-2025", validity="the fleet has the capacity; the API price stays as it is")
def break_even_requests(fleet_usd, api_usd_per_request):
    """Requests for which an API charges what the fleet costs in the same time; beyond it the fleet is cheaper.

    >>> break_even_requests(87_072, 0.005)
    17414400.0
    """
    return fleet_usd / api_usd_per_request
