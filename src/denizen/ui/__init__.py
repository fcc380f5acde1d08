"""The page that `denizen ui` serves: run folders in a browser, while they run and afterwards.

It reads folders and changes nothing. What it reads goes through the readers of the library, so that a run that is being
written is read as it was last saved.
"""

from denizen.ui._server import make_app as make_app
from denizen.ui._server import serve as serve
