"""Image embeddings from a pretrained network whose weights lie on this machine (extra `vision`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vicinal import _checks
from vicinal._arrays import AnyArray
from vicinal._lazy import of_extra
from vicinal.errors import InvalidInput
from vicinal.features._fixed import AnyImages, FixedImageFeatures, LoadedOnce, Vectors, one_by_one

if TYPE_CHECKING:
    import torch

Image = AnyArray

BRIGHTEST = 255
_PART = 64

_extra = partial(of_extra, "vision", purpose="ImageFeatures")


class _LoadedNetwork(NamedTuple):
    """A network in evaluation, with what its pixels must look like."""

    network: torch.nn.Module
    shape: tuple[int, int, int]
    mean: torch.Tensor
    deviation: torch.Tensor


class ImageFeatures(LoadedOnce["_LoadedNetwork"], FixedImageFeatures):
    """What a fixed, public network of timm makes of every image, before its classes.

    Nothing is downloaded: timm gives the architecture, a file gives the weights.

    Parameters
    ----------
    model
        Name of a timm architecture, such as "resnet18".
    weights
        File with the weights: .safetensors, or what ``torch.save`` made of a state dict (read with
        ``weights_only=True``, which runs no code).
    device
        Where torch computes: "cpu", "cuda".

    Notes
    -----
    Every image goes through the network alone, so its embedding is the same bit for bit whichever
    other images are passed. It is a function of one record and costs no privacy. Equality across
    machines, versions of torch or numbers of threads does not hold: embed records and queries with
    one installation.

    Pixels are 0 to 255, whatever their type. An image is scaled so that it just covers the
    network's input (bilinear, averaged over what a smaller image leaves out), its middle is cut
    out, and pixels are normalised as the architecture says. Grey images get three equal channels
    where the network wants three; colours are averaged where it wants one.

    Examples
    --------
    >>> from vicinal import ImageFeatures
    >>> network = ImageFeatures("resnet18", "resnet18.safetensors")  # doctest: +SKIP
    >>> network.transform(images).shape  # doctest: +SKIP
    (100, 512)
    """

    def __init__(self, model: str, weights: str, device: str = "cpu") -> None:
        self.model = model
        self.weights = weights
        self.device = device

    def _parts(self, images: AnyImages) -> Iterable[Vectors]:
        pixels = [checked_image(image) for image in listed_images(images)]
        loaded = self._network()
        embed = partial(_embedded, loaded, device=self.device)
        return one_by_one(pixels, embed, _PART)

    def _network(self) -> _LoadedNetwork:
        """Return the loaded network, loading it once for every choice of parameters."""
        key = (self.model, self.weights, self.device)
        return self._loaded_once(key, lambda: _load(self.model, Path(self.weights), self.device))


def listed_images(images: Any) -> Sequence[Any]:
    """Return `images` if they are a list, or an array, of at least one; else raise InvalidInput."""
    if isinstance(images, str | bytes) or not hasattr(images, "__len__") or len(images) == 0:
        raise InvalidInput("The images must be a list of at least one image.")
    return images  # type: ignore[no-any-return]


def checked_image(image: Any) -> Image:
    """Return an image as an array of numbers, or say what is wrong with it; repeats no pixel."""
    _checks.unmasked("images", image)
    try:
        pixels = np.asarray(image)
    except ValueError:
        raise InvalidInput("Every row of an image must have the same length.") from None
    if pixels.dtype.kind not in "uif":
        raise InvalidInput(f"The images must hold integers or floats. Got dtype {pixels.dtype}.")
    if pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)) or pixels.size == 0:
        raise InvalidInput("Every image must be an array (h, w), or (h, w, 3) for colour.")
    # Written so that NaN fails it too.
    if not ((pixels >= 0) & (pixels <= BRIGHTEST)).all():
        raise InvalidInput(f"The images must hold pixels of 0 to {BRIGHTEST}.")
    return pixels


def _embedded(loaded: _LoadedNetwork, pixels: Image, device: str) -> Vectors:
    """Return the embedding (d,) of one image."""
    import torch

    with torch.inference_mode():
        batch = _fitted(pixels, loaded).to(device)
        embedding = loaded.network(batch).flatten().cpu().numpy()
    vector = np.asarray(embedding, dtype=np.float32)
    if not np.isfinite(vector).all():
        raise InvalidInput("The network makes no finite numbers of an image.")
    return vector


def _fitted(pixels: Image, loaded: _LoadedNetwork) -> torch.Tensor:
    """Return an image as the network's input (1, channels, height, width)."""
    import torch
    from torch.nn.functional import interpolate

    channels, height, width = loaded.shape
    image = torch.from_numpy(np.ascontiguousarray(pixels, dtype=np.float32)) / BRIGHTEST
    image = image[None] if image.ndim == 2 else image.permute(2, 0, 1)
    if len(image) != channels:
        image = image.expand(channels, -1, -1) if channels == 3 else image.mean(0, keepdim=True)
    scale = max(height / image.shape[1], width / image.shape[2])
    size = [max(height, round(scale * image.shape[1])), max(width, round(scale * image.shape[2]))]
    scaled = interpolate(image[None], size=size, mode="bilinear", antialias=True)
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    middle = scaled[:, :, top : top + height, left : left + width]
    return (middle - loaded.mean) / loaded.deviation


def _load(model: object, weights: Path, device: str) -> _LoadedNetwork:
    """Return the network with the weights of a file."""
    timm, torch = _extra("timm"), _extra("torch")
    # Asked first, as other names than those of architectures would make timm download something.
    if not isinstance(model, str) or not timm.is_model(model):
        raise InvalidInput("The 'model' parameter must be the name of a timm architecture.")
    network = timm.create_model(model, pretrained=False, num_classes=0)
    _fill(network, _state(weights))
    config = network.pretrained_cfg
    mean, deviation = (torch.tensor(config[name])[:, None, None] for name in ("mean", "std"))
    return _LoadedNetwork(network.eval().to(device), tuple(config["input_size"]), mean, deviation)


def _state(weights: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a file by name."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not weights.is_file():
        raise InvalidInput(f"The 'weights' parameter must be a file. There is none at {weights}.")
    try:
        with weights.open("rb") as file:
            zipped = file.read(2) == b"PK"  # as torch.save writes
        if zipped:
            return dict(torch.load(weights, map_location="cpu", weights_only=True))
        tensors: dict[str, torch.Tensor] = load_file(weights)
        return tensors
    except (SafetensorError, OSError, RuntimeError, ValueError, TypeError, EOFError, KeyError):
        raise _unfit(weights) from None
    except Exception as error:
        # What torch raises for a file that would run code; its class is that of pickle.
        if type(error).__name__ == "UnpicklingError":
            raise _unfit(weights) from None
        raise


def _fill(network: Any, state: dict[str, Any]) -> None:
    """Put weights into a network; those of its classes, which it has none of, are left out."""
    named = network.pretrained_cfg.get("classifier") or ()
    last = tuple(f"{name}." for name in ([named] if isinstance(named, str) else named))
    weights = {name: value for name, value in state.items() if not (last and name.startswith(last))}
    try:
        network.load_state_dict(weights)
    except (RuntimeError, TypeError, AttributeError):
        raise InvalidInput(
            "The 'weights' file must hold the weights of the architecture that 'model' names."
        ) from None


def _unfit(weights: Path) -> InvalidInput:
    return InvalidInput(f"{weights} holds no weights: neither safetensors nor a plain state dict.")
