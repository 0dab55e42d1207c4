"""The model that an argument means: a reference model by name, a model from a file, or any module."""

import importlib.util
import pathlib
import sys
from collections.abc import Callable

import cloudpickle

from hybridlab.core.what.catalog import MODELS
from hybridlab.core.what.shape import Shape
from hybridlab.training.data.images import Digits
from hybridlab.training.models.conv import ConvNet, label_loss
from hybridlab.training.models.inception import Inception
from hybridlab.training.models.model import Model
from hybridlab.training.models.multi_token import multi_token
from hybridlab.training.models.resnet import ResNet
from hybridlab.training.models.transformer import Transformer
from hybridlab.training.models.unet import UNet, image_loss

PIXELS, PICTURES = 64, "B C Y X"


class Noisy:
    """Digits for denoising, as a source of batches."""

    def __init__(self, digits: Digits):
        self.digits = digits
        self.batch = digits.noisy

    @property
    def unseen(self) -> "Noisy":
        return Noisy(self.digits.unseen)


GALLERY: dict[str, tuple[str, Callable[[], Model]]] = {
    "gpt": ("a small GPT over bytes of text", lambda: Transformer(Shape())),
    "modern": (
        "RMSNorm, SwiGLU, rotary positions, grouped queries, over bytes of text",
        lambda: Transformer(Shape(style="llama", kv_heads=2, inner=88)),
    ),
    "parallel": (
        "the small GPT with attention and MLP side by side in each block",
        lambda: Transformer(Shape(parallel=True)),
    ),
    "multi_token": (
        "the modern one, with one more block, which predicts the token after the next",
        lambda: multi_token(Shape(style="llama", kv_heads=2, inner=88)),
    ),
    "conv": (
        "a convolutional net with batch norm that reads digits",
        lambda: Model(ConvNet, label_loss, Digits.load(), enters=PICTURES),
    ),
    "unet": (
        "a U-Net that takes noise out of digits, with two long skips",
        lambda: Model(UNet, image_loss, Noisy(Digits.load()), terms=PIXELS, enters=PICTURES, targets=PICTURES),
    ),
    "resnet": (
        "a residual net whose layers differ in time",
        lambda: Model(ResNet, label_loss, Digits.load(), enters=PICTURES),
    ),
    "inception": (
        "a net whose modules have three branches of convolutions, unequal in time",
        lambda: Model(Inception, label_loss, Digits.load(), enters=PICTURES),
    ),
}


def model_of(model, loss=None, data=None, **more) -> Model:
    """The model for an argument: a Model, a reference model by its name, a transformer by its Shape or by its name in
    the catalog, or a user's module with its loss and data.

    raises  ValueError if a module comes without its loss or its data, or another model with a loss or data that it
            already has
    """
    if isinstance(model, str | Shape | Model):
        known = model in MODELS if isinstance(model, str) else isinstance(model, Shape)  # it reads any text
        asked = more | {"loss": loss, "data": None if known else data}
        for name in (name for name, value in asked.items() if value is not None):
            raise ValueError(f"{name} applies only to your own module, and this model has its own: leave out {name}")
    if isinstance(model, str) and model in MODELS:
        model = MODELS[model].shape
    if isinstance(model, str):
        return named(model)
    if isinstance(model, Shape):
        return Transformer(model, data)
    if isinstance(model, Model):
        return model
    if loss is None or data is None:
        of_data = "data=g, batches g(step, rows), or a DataLoader"
        missing = "loss=f, a summed loss(output, target)" if loss is None else of_data
        raise ValueError(f"your own model is incomplete: give {missing}")
    return Model(model, loss, data, **more)


def named(name: str) -> Model:
    """A reference model by its name, or a model from a file: "FILE.py:name", where the name is a `Model`, or a
    config.json of Hugging Face.

    raises  ValueError that lists the valid names

    >>> named("conv").made(0, __import__("torch").float32)(__import__("torch").zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    if name in GALLERY:
        return GALLERY[name][1]()
    if name.endswith(".json"):
        return Model.from_hf(name)
    file, colon, inside = name.rpartition(":")
    if not file.endswith(".py") or not inside:
        raise ValueError(
            f"there is no model {name!r}: choose one of {', '.join(GALLERY)}, one from the catalog "
            f"({', '.join(MODELS)}), or give FILE.py:name, or a Hugging Face config.json"
        )
    made = getattr(_loaded(file), inside, None)
    if made is None:
        raise ValueError(f"{file} has no {inside}: give the name of a hybridlab Model")
    if not isinstance(made, Model):
        raise ValueError(f"{inside} in {file} is a {type(made).__name__}: make it hybridlab.Model(module, loss, data)")
    return made


def _loaded(file: str):
    """A file as a module. It is sent to the ranks with its definitions, since they cannot import it."""
    path = pathlib.Path(file)
    if not path.is_file():
        raise ValueError(f"there is no file {file}: correct its name")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    before, sys.modules[path.stem] = sys.modules.get(path.stem), module
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        raise ValueError(
            f"{file} ends the program when it is read, sys.exit({error.code!r}): put all code except the model under "
            'if __name__ == "__main__"'
        ) from None
    except Exception as error:
        raise ValueError(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    finally:
        if before is not None:
            sys.modules[path.stem] = before
    cloudpickle.register_pickle_by_value(module)
    return module
