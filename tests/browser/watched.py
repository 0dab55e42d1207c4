"""A page that is watched: what went wrong in it, and what would have left this machine."""

import re

HERE = re.compile(r"(https?|wss?)://(127\.0\.0\.1|localhost)[:/]|data:|blob:|file:|about:")
PATIENCE = 10_000  # milliseconds


class Watched:
    """A page, with what went wrong in it: errors, and requests that would have left this machine (they are stopped)."""

    def __init__(self, browser, **context):
        self.context = browser.new_context(viewport={"width": 1280, "height": 1000}, **context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.errors, self.strangers = [], []
        self.context.route("**/*", self._pass_or_stop)
        self.page.on("websocket", lambda socket: HERE.match(socket.url) or self.strangers.append(socket.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._hear)

    def _pass_or_stop(self, route):
        if HERE.match(route.request.url):
            return route.continue_()
        self.strangers.append(route.request.url)
        route.abort()

    def _hear(self, message):
        if message.type == "error":
            self.errors.append(f"{message.text} ({message.location.get('url', '')})")

    def check(self):
        """No error, and nothing left this machine."""
        wrong = self.errors + [f"a request to {address}" for address in self.strangers]
        assert not wrong, wrong
