"""Models on this machine, which transformers and PyTorch run: CLIP for pictures and texts, and models that see."""

from __future__ import annotations

import hashlib
import io
import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tvsnap import Sandbox, UsageError
from tvsnap.plugins.training import arithmetic
from tvsnap.plugins.video.models import Answer, Prompt, Vectors, failure

_PARTS = (".safetensors", ".json", ".txt", ".model", ".jinja")
"""The files of a model; pickles (`.bin`) are not loaded, because they may be programs."""
_BLOCK = 1 << 20


class _Loaded:
    """A model in a folder: it is loaded when it is first used, and used by one thread at a time."""

    def __init__(self, path: str | Path, kind: str, device: str, most_pixels: int, settings: str) -> None:
        torch, transformers = _packages()
        arithmetic.warn_if_too_late()
        self.folder = _folder(path)
        self.device = device
        self._kind = kind
        self._most_pixels = _count("most_pixels", most_pixels)
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None
        versions = f"transformers {transformers.__version__}, torch {torch.__version__}, {device}"
        self.name = self.folder.name if Path(path).is_dir() else str(path)
        self.identity = f"{kind} {self.name}: sha256 {_digest(self.folder)}, {settings}, {versions}"

    @contextmanager
    def used(self, until: float) -> Iterator[tuple[Any, Any]]:
        """A block that has the processor and the model for itself; `until` is by `time.monotonic`."""
        if not self._lock.acquire(timeout=max(0.0, until - time.monotonic())):
            self.out_of_time()
        try:
            torch, _ = _packages()
            if self._loaded is None:
                self._loaded = self._load()
            with torch.inference_mode():
                yield self._loaded
        finally:
            self._lock.release()

    def _load(self) -> tuple[Any, Any]:
        torch, transformers = _packages()
        try:
            processor = transformers.AutoProcessor.from_pretrained(self.folder, local_files_only=True)
            model, loading = getattr(transformers, self._kind).from_pretrained(
                self.folder,
                local_files_only=True,
                use_safetensors=True,
                dtype=torch.float32,
                output_loading_info=True,
            )
            model = model.to(self.device).eval()
        except Exception as error:  # damaged files and lacking packages lead to errors of many kinds
            raise UsageError(f"the model in {self.folder} cannot be loaded: {type(error).__name__}: {error}") from None
        if missing := sorted(map(str, [*loading["missing_keys"], *loading["mismatched_keys"]])):
            raise UsageError(f"the model in {self.folder} lacks weights, which would be random: {missing[:3]}")
        return processor, model

    def opened(self, picture: bytes) -> Any:
        """Returns a picture, which nobody has vouched for, as PIL has it."""
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(io.BytesIO(picture), formats=("JPEG",)) as image:
                if math.prod(image.size) > self._most_pixels:
                    raise failure(
                        self.name,
                        f"was given a picture of {image.width} x {image.height} pixels, and most_pixels is "
                        f"{self._most_pixels}",
                    )
                return image.convert("RGB")
        except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError, SyntaxError) as error:
            raise failure(self.name, f"was given what is no JPEG file: {error}") from None

    def out_of_time(self) -> None:
        """Raises DependencyFailed."""
        raise failure(self.name, "was not done when the call's time was over")


class Clip:
    """A model such as CLIP or SigLIP, whose vectors of pictures and of texts can be compared: a `PictureEmbedder`."""

    def __init__(
        self, path: str | Path, *, batch: int = 16, device: str = "cpu", most_pixels: int = 20_000_000
    ) -> None:
        """
        Args:
            path: the folder of the model, as `save_pretrained` of transformers writes it; or its name, where the
                cache of Hugging Face has it. Nothing is downloaded.
            batch: pictures or texts in memory at a time.
            device: as PyTorch names it.
            most_pixels: pixels of one picture, at most; larger ones are an error.

        Raises:
            UsageError: an argument makes no sense, the model is not there, or a package is missing.
        """
        self._batch = _count("batch", batch)
        self._loaded = _Loaded(path, "AutoModel", device, most_pixels, f"batches of {batch}")
        self.identity = self._loaded.identity

    def embed_texts(self, texts: Sequence[str], *, seconds: float) -> Vectors:
        """See `Embedder.embed_texts`. What is longer than the model can take is cut off.

        Raises:
            DependencyFailed: the time is over.
            UsageError: the model cannot be loaded.
        """

        def prepared(processor: Any, part: Sequence[Any]) -> Any:
            return processor(text=list(part), padding="max_length", truncation=True, return_tensors="pt")

        return self._embed(texts, prepared, "get_text_features", seconds)

    def embed_pictures(self, pictures: Sequence[bytes], *, seconds: float) -> Vectors:
        """See `PictureEmbedder.embed_pictures`.

        Raises:
            DependencyFailed: a picture is no JPEG file, or too large, or the time is over.
            UsageError: the model cannot be loaded.
        """

        def prepared(processor: Any, part: Sequence[Any]) -> Any:
            return processor(images=[self._loaded.opened(one) for one in part], return_tensors="pt")

        return self._embed(pictures, prepared, "get_image_features", seconds)

    def _embed(self, items: Sequence[Any], prepared: Any, features: str, seconds: float) -> Vectors:
        until = time.monotonic() + seconds
        vectors: list[list[float]] = []
        with self._loaded.used(until) as (processor, model):
            for start in range(0, len(items), self._batch):
                if time.monotonic() > until:
                    self._loaded.out_of_time()
                inputs = prepared(processor, items[start : start + self._batch]).to(self._loaded.device)
                output = getattr(model, features)(**inputs)
                vectors += getattr(output, "pooler_output", output).float().cpu().tolist()
        return Vectors(vectors)


class Captioner:
    """A model that answers prompts with pictures and has a template of chats, such as SmolVLM or Qwen-VL: a `Model`.

    Prompts are answered one after another: side by side, they would be padded, and an answer depend on its neighbours.
    """

    def __init__(self, path: str | Path, *, device: str = "cpu", most_pixels: int = 20_000_000) -> None:
        """
        Args:
            path: as of `Clip`.
            device: as PyTorch names it.
            most_pixels: pixels of one picture, at most; larger ones are an error.

        Raises:
            UsageError: an argument makes no sense, the model is not there, or a package is missing.
        """
        self._loaded = _Loaded(path, "AutoModelForImageTextToText", device, most_pixels, "the likeliest answer")
        self.identity = self._loaded.identity

    def ask(self, prompts: Sequence[Prompt], *, sandbox: Sandbox | None = None, seconds: float) -> list[Answer]:
        """See `Model.ask`. An answer's cost is its `prompt_tokens` and `completion_tokens`.

        Raises:
            DependencyFailed: a picture is no JPEG file, or too large, an answer is empty, or the time is over.
            UsageError: the model cannot be loaded, or has no template of chats.
        """
        until = time.monotonic() + seconds
        with self._loaded.used(until) as (processor, model):
            return [self._ask(processor, model, prompt, until) for prompt in prompts]

    def _ask(self, processor: Any, model: Any, prompt: Prompt, until: float) -> Answer:
        seconds_left = until - time.monotonic()
        if seconds_left <= 0:
            self._loaded.out_of_time()
        content: list[dict[str, Any]] = [
            {"type": "image", "image": self._loaded.opened(picture)} for picture in prompt.pictures
        ]
        messages = [{"role": "user", "content": [*content, {"type": "text", "text": prompt.text}]}]
        if not processor.chat_template:
            raise UsageError(f"the model {self._loaded.name!r} has no template of chats")
        inputs = processor.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        ).to(self._loaded.device)
        prompt_length = inputs["input_ids"].shape[1]
        tokens = model.generate(
            **inputs, max_new_tokens=prompt.most_tokens, max_time=seconds_left, do_sample=False, num_beams=1
        )[0, prompt_length:]
        if time.monotonic() > until:
            self._loaded.out_of_time()  # the answer may be cut off
        text = processor.decode(tokens, skip_special_tokens=True).strip()
        if not text:
            raise failure(self._loaded.name, "gave an empty answer")
        return Answer(text, {"prompt_tokens": prompt_length, "completion_tokens": len(tokens)})


def _packages() -> tuple[Any, Any]:
    """Returns PyTorch and transformers, which are imported when they are first used."""
    try:
        import PIL  # noqa: F401
        import torch
        import transformers
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the package {error.name} is missing, which runs models: pip install 'tvsnap[train]'"
        ) from None
    return torch, transformers


def _folder(path: str | Path) -> Path:
    """Returns the folder of a model that is given by path or by name."""
    folder = Path(path)
    if not folder.is_dir():
        import huggingface_hub

        try:
            folder = Path(huggingface_hub.snapshot_download(str(path), local_files_only=True))
        except (OSError, ValueError):  # its own errors are among these
            raise UsageError(
                f"path {str(path)!r} is neither a folder nor a model in the cache of Hugging Face; nothing is "
                f"downloaded: hf download {path}"
            ) from None
    if not (folder / "config.json").is_file() or not list(folder.glob("*.safetensors")):
        raise UsageError(f"the folder {folder} has no model: config.json and weights as *.safetensors")
    return folder


def _digest(folder: Path) -> str:
    """Returns the SHA-256 digest, in hex, of what a model consists of: the names and contents of its files."""
    whole = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.suffix in _PARTS and file.is_file():
            part = hashlib.sha256()
            with file.open("rb") as content:
                while block := content.read(_BLOCK):
                    part.update(block)
            whole.update(f"{file.relative_to(folder).as_posix()}\0{part.hexdigest()}\n".encode())
    return whole.hexdigest()


def _count(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{name} must be a whole number of 1 or more, not {value!r}")
    return value
