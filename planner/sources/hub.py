"""Models of the Hugging Face hub: from its cache on this machine, and from the hub itself where that is allowed.

The cache is read by its layout (``models--org--name/refs/main`` names the snapshot of the branch), which needs no
library. Over the network, through `huggingface_hub` for its addresses, tokens and proxies, come a config.json, an index
of shards, and of each shard the header by range requests, several shards at a time: no byte of a weight.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from planner.errors import InputError
from planner.loading import MAX_BYTES
from planner.sources.checkpoint import INDEX, Checkpoint, read_indexed, read_shards
from planner.sources.headers import MAX_HEADER_BYTES, ByteRanges

CONFIG = "config.json"
QUANTIZATION = "hf_quant_config.json"
"""Where ModelOpt says how weights are quantised; older checkpoints say it nowhere else."""
SINGLE = "model.safetensors"
PERMISSION = "PLANNER_ONLINE"
"""The environment variable that allows the network for every model, as ``--online`` does for one command."""

MAX_S = 300.0
"""Seconds for one file or range, for a server that sends a little just before each time-out."""

WORKERS = 8
"""Shards whose headers are fetched at a time."""
MAX_AHEAD_BYTES = 8_000_000
"""A header longer than any published shard's is fetched when its turn comes: what is fetched ahead stays bounded."""

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-zA-Z._-]{1,100}", re.ASCII)
_CONTENT_RANGE = re.compile(r"bytes \d+-\d+/(\d{1,18})", re.ASCII)
_LENGTH_BYTES = 8  # of a safetensors header: the first range, which also tells how large the file is


def is_name(text: str) -> bool:
    """Whether a text is a model's name on the hub.

    >>> is_name("org/name-1.5"), is_name("./folder"), is_name("a/b/c"), is_name("gpt2")
    (True, False, False, False)
    """
    return _NAME.fullmatch(text) is not None and ".." not in text


def allowed(online: bool) -> bool:
    """Whether the network may be used: asked for, or allowed by the environment."""
    return online or _is_set(PERMISSION)


def cached(name: str) -> Path | None:
    """The folder of a model's files in the local cache: the snapshot of its main branch, or the only one."""
    folder = _cache() / f"models--{name.replace('/', '--')}"
    snapshots = folder / "snapshots"
    try:
        main = folder / "refs" / "main"
        if main.is_file():
            commit = main.read_text("utf-8").strip()
            found = [snapshots / commit] if _COMMIT.fullmatch(commit) else []
        else:
            found = list(snapshots.iterdir()) if snapshots.is_dir() else []
        return found[0] if len(found) == 1 and found[0].is_dir() else None
    except (OSError, ValueError):  # a cache that cannot be read is one that lacks it
        return None


def _cache() -> Path:
    """Where the hub's own library keeps files: HF_HUB_CACHE, else hub in HF_HOME, else in the user's cache."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return Path(os.path.expanduser(os.path.expandvars(os.environ[variable])))
    of_user = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    home = os.environ.get("HF_HOME") or os.path.join(of_user, "huggingface")
    return Path(os.path.expanduser(os.path.expandvars(home))) / "hub"


def fetch_text(name: str, file: str) -> str:
    """The text of a model's file on the hub. Raises `InputError` with one sentence if it cannot be had."""
    data, _ = _fetch(name, file, MAX_BYTES)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{name}/{file}: not text in UTF-8") from None


def fetch_checkpoint(name: str) -> Checkpoint:
    """The headers of a model's safetensors files on the hub. Raises `InputError` if they cannot be had."""
    try:
        index, size = _fetch(name, INDEX, MAX_HEADER_BYTES)
    except Absent:
        try:
            return read_shards([_remote(name, SINGLE)])
        except Absent:
            rule = f"neither {INDEX} nor {SINGLE} on the hub; name a file that you downloaded"
            raise InputError(f"{name}: {rule}") from None
    whole = ByteRanges(f"{name}/{INDEX}", size, lambda offset, length: index[offset : offset + length])
    with ThreadPoolExecutor(WORKERS) as pool:
        return read_indexed(whole, lambda shards: _remotes(name, shards, pool))


class Absent(InputError):
    """The hub has no such model or file."""


def _remotes(name: str, files: Iterable[str], pool: Executor) -> Iterator[ByteRanges]:
    """Files on the hub in their order, `WORKERS` of them under way while one is read; the first that fails ends it."""
    files = iter(files)
    ahead = deque(pool.submit(_remote, name, file) for file in islice(files, WORKERS))
    while ahead:
        yield ahead.popleft().result()
        ahead.extend(pool.submit(_remote, name, file) for file in islice(files, 1))


def _remote(name: str, file: str) -> ByteRanges:
    """A file on the hub, read by range requests; its header is there, and is let go when it has been read."""
    start, size = _fetch(name, file, _LENGTH_BYTES, offset=0)
    held = {0: start}
    length = int.from_bytes(start, "little")
    if 0 < length <= min(MAX_AHEAD_BYTES, size - len(start)):
        held[len(start)] = _fetch(name, file, length, len(start))[0]

    def open_range(offset: int, length: int) -> bytes:
        data = held.pop(offset, b"")
        return data if len(data) == length else _fetch(name, file, length, offset)[0]

    return ByteRanges(f"{name}/{file}", size, open_range)


def _fetch(name: str, file: str, length: int, offset: int | None = None) -> tuple[bytes, int]:
    """A whole file of at most `length` bytes, or that many from `offset`; and how large the file is."""
    library = _library(name)
    endpoint = _endpoint(library)
    place = f"{name}/{file}"
    headers = {"User-Agent": "decoder-planner", "Accept-Encoding": "identity"}
    token = None if library.constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else library.get_token()
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if offset is not None:
        headers["Range"] = f"bytes={offset}-{offset + length - 1}"
    timeout = library.constants.HF_HUB_DOWNLOAD_TIMEOUT
    data, begun = bytearray(), time.monotonic()
    try:
        url = library.hf_hub_url(name, file, endpoint=endpoint)
        with library.utils.get_session().stream("GET", url, headers=headers, timeout=timeout) as response:
            _check_status(response, name, file, endpoint, ranged=offset is not None)
            for chunk in response.iter_bytes():
                data += chunk
                if time.monotonic() - begun > MAX_S:
                    raise InputError(f"{place}: not all there after {MAX_S:g} s; try again over a faster connection")
                if len(data) > length:
                    raise InputError(f"{place}: more than the {length:,} bytes that were asked for or are read")
            size = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    except library.errors.HTTPError as error:
        if "Timeout" in type(error).__name__:
            remedy = "try again, or set HF_HUB_DOWNLOAD_TIMEOUT"
            raise InputError(f"{place}: {endpoint} did not answer within {timeout:g} s; {remedy}") from None
        remedy = "check the connection, or name a config.json that you have"
        raise InputError(f"{place}: {endpoint} cannot be reached ({_words(error)}); {remedy}") from None
    except library.errors.OfflineModeIsEnabled:
        raise _offline(name) from None
    if offset is not None and size is None:
        raise InputError(f"{place}: the answer to a range request does not say how large the file is")
    return bytes(data), int(size[1]) if size else len(data)


def _library(name: str) -> Any:
    if _is_set("HF_HUB_OFFLINE"):
        raise _offline(name)
    try:
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ImportError:
        rule = "asking the hub needs the package huggingface_hub"
        raise InputError(f"{name}: {rule}; install the planner with its extra [hub]") from None
    return huggingface_hub


def _endpoint(library: Any) -> str:
    endpoint = str(os.environ.get("HF_ENDPOINT") or library.constants.ENDPOINT).rstrip("/")
    try:
        parts = urlsplit(endpoint)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise InputError(f"HF_ENDPOINT = {endpoint[:100]!r} is not an address such as https://huggingface.co")
    return endpoint


def _check_status(response: Any, name: str, file: str, endpoint: str, *, ranged: bool) -> None:
    status, code = response.status_code, response.headers.get("X-Error-Code", "")
    place = f"{name}/{file}"
    if status in (401, 403) or code == "GatedRepo":
        rule = f"the hub refuses it (HTTP {status}): it is gated, private or not there"
        raise InputError(f"{name}: {rule}; accept its terms at {endpoint}/{name} and set HF_TOKEN")
    if status == 404:
        if code == "EntryNotFound":
            raise Absent(f"{name}: has no {file} at {endpoint}; name a file that you have")
        raise Absent(f"{name}: neither it nor its {file} is at {endpoint}; check the name")
    if status == 429:
        raise InputError(f"{place}: {endpoint} has had too many requests (HTTP 429); wait a while, or set HF_TOKEN")
    if ranged and status == 200:
        raise InputError(f"{place}: {endpoint} sends whole files only; download it and name its path")
    if status != (206 if ranged else 200):
        raise InputError(f"{place}: {endpoint} answers HTTP {status}; try again later")


def _offline(name: str) -> InputError:
    rule = f"not in the cache {_cache()}, and HF_HUB_OFFLINE forbids to ask the hub"
    return InputError(f"{name}: {rule}; unset it, or name a config.json that you have")


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").strip().casefold() in ("1", "true", "yes", "on")


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
