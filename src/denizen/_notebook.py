"""What notebooks show of objects. What prints is imported where it is used: models are used without it."""

import base64
import importlib.util
from typing import Any

from denizen.errors import DenizenError


class InNotebook:
    """What a notebook shows of an object: what `print` shows of it, and the picture that its `plot()` draws."""

    def _repr_html_(self) -> str:
        from denizen._printing import html

        return html(self._printed()) + self._picture()

    def _printed(self) -> Any:
        return self if hasattr(self, "__rich__") else str(self)

    def _picture(self) -> str:
        plot = getattr(self, "plot", None)
        if plot is None or importlib.util.find_spec("matplotlib") is None:
            return ""
        try:
            data = plot()._repr_png_()
        except DenizenError:  # there is nothing to draw yet
            return ""
        return f'<img alt="{type(self).__name__}" src="data:image/png;base64,{base64.b64encode(data).decode()}">'
