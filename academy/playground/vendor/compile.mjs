// node compile.mjs PYODIDE FOLDER OPTIMIZE: compiles each module of FOLDER with Pyodide's own Python, whose bytecode differs
// from version to version. FOLDER/a/b.py gets FOLDER/a/b.pyc, which is never compared with its source.
import { pathToFileURL } from "node:url"

const [pyodide, root, optimize] = process.argv.slice(2)
const { loadPyodide } = await import(pathToFileURL(`${pyodide}/pyodide.mjs`).href)
const python = await loadPyodide({ indexURL: pyodide, env: { HOME: "/home/pyodide" } })
python.FS.mkdir("/modules")
python.FS.mount(python.FS.filesystems.NODEFS, { root }, "/modules")
python.runPython(`
import pathlib, py_compile
root = pathlib.Path("/modules")
for path in sorted(root.rglob("*.py")):
    py_compile.compile(
        str(path), cfile=f"{path}c", dfile=path.relative_to(root).as_posix(), doraise=True, optimize=${Number(optimize)},
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
`)
