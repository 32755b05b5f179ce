"""Prices, dated: what an accelerator costs by the hour, and what others ask for a million tokens.

`accelerator_hours.csv`: `usd_per_hour` of one accelerator in an instance of `accelerators` of them, without tax.
`basis` is on_demand, spot or reserved; `term` says what a reservation binds to.

`api.csv`: `usd_per_mtok` of a token class (input, cached_input, cache_write, output, batch_input, batch_output).
`above_tokens` is the length of the prompt from which the price holds, then for the whole request. `model` is one word
for what the providers call `model_id`.

`date` is the day from which a row holds, the first of the period that its source names: "2026-06" stands as
2026-06-01, and `precision` says that only the month is known. Rows are added, never overwritten: a price as of a past
date stays what it was. `confidence` is A to D, as `presets/hardware_sources.toml` explains it.
"""
