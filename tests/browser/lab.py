"""A real JupyterLab on loopback, and a notebook opened in it by a browser."""

import ast
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import nbformat

START_S = 60
READY = """() => {
  const kernel = window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel;
  return kernel?.status === 'idle';
}"""
ASK = """async (expression) => {
  const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const asked = kernel.requestExecute({ code: '', silent: true, user_expressions: { it: expression } });
  return (await asked.done).content.user_expressions.it;
}"""


class Lab:
    """A JupyterLab server with settings of its own; `folder` is what it serves."""

    def __init__(self, folder, home):
        self.folder, self.port, self.token = folder, _free_port(), secrets.token_hex(16)
        news = home / "settings" / "@jupyterlab" / "apputils-extension"  # else a notice about news covers the page
        news.mkdir(parents=True)
        (news / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
        names = {"CONFIG": "config", "DATA": "data", "RUNTIME": "runtime"}
        own = {f"JUPYTER_{name}_DIR": str(home / where) for name, where in names.items()}
        own |= {f"JUPYTERLAB_{name}_DIR": str(home / name.lower()) for name in ("SETTINGS", "WORKSPACES")}
        options = [f"--port={self.port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={self.token}"]
        options += ["--ip=127.0.0.1", "--no-browser", "--expose-app-in-browser", f"--ServerApp.root_dir={folder}"]
        self.log = home / "log"
        with self.log.open("w") as log:
            command = [sys.executable, "-m", "jupyterlab", *options, *(["--allow-root"] if os.geteuid() == 0 else [])]
            self.process = subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log)
        self._wait()

    def _wait(self):
        begin = time.monotonic()
        while self.process.poll() is None and time.monotonic() - begin < START_S:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api?token={self.token}", timeout=2).close()
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        self.stop()
        raise RuntimeError(f"JupyterLab does not answer:\n{self.log.read_text()[-2000:]}")

    def open(self, page, name, *cells) -> "Notebook":
        """A notebook of these cells, opened in a page of the browser and run to its end."""
        v4 = nbformat.v4
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        nbformat.write(v4.new_notebook(cells=list(map(v4.new_code_cell, cells)), metadata=kernel), self.folder / name)
        return self.open_file(page, name)

    def open_file(self, page, name) -> "Notebook":
        """A notebook that lies in the folder, opened in a page of the browser and run to its end."""
        self.show(page, name)
        page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
        return Notebook(page)

    def show(self, page, name):
        """Open a notebook that lies in the folder, in the light theme, and run nothing."""
        page.goto(f"http://127.0.0.1:{self.port}/lab/tree/{name}?reset&token={self.token}")
        page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell", timeout=60_000)
        page.wait_for_function(READY, timeout=60_000)
        if page.locator("body[data-jp-theme-light='false']").count():  # as the last reader chose: the server keeps it
            Notebook(page).theme("JupyterLab Light")

    def stop(self):
        """End the server and, with it, its kernels."""
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Notebook:
    """The notebook that a page shows, and the kernel behind it."""

    def __init__(self, page):
        self.page = page

    def ask(self, expression: str):
        """The value of an expression in the kernel: anything that Python can read back."""
        reply = self.page.evaluate(ASK, expression)
        assert reply["status"] == "ok", json.dumps(reply)
        return ast.literal_eval(reply["data"]["text/plain"])

    def until(self, expression: str, wanted, seconds: float = 10):
        """Wait until an expression in the kernel has a value; the last one is shown if it never does."""
        end = time.monotonic() + seconds
        while (found := self.ask(expression)) != wanted and time.monotonic() < end:
            self.page.wait_for_timeout(50)
        assert found == wanted, f"{expression} is {found!r}, not {wanted!r}"

    def theme(self, name: str):
        """Change JupyterLab's theme: "JupyterLab Light" or "JupyterLab Dark"."""
        self.page.evaluate("(theme) => jupyterapp.commands.execute('apputils:change-theme', { theme })", name)
        light = "true" if name.endswith("Light") else "false"
        self.page.wait_for_selector(f"body[data-jp-theme-light='{light}']", state="attached")
        self.page.wait_for_timeout(400)  # the page is painted again after its colours have come

    def no_error(self):
        """Nothing in the notebook shows a traceback."""
        shown = self.page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.error']")
        assert shown.count() == 0, shown.first.inner_text()


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
