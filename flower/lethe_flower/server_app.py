"""The Flower ServerApp: `flwr run` starts one job.

flwr run flower --run-config 'job="/srv/lethe/job.json" out="/srv/lethe/out"'
"""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from lethe_flower.grid_exchange import GridExchange
from lethe_flower.job import read_job
from lethe_flower.run import run
from workers.errors import RefusedError

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the job that the run's configuration names."""
    job, out = (str(context.run_config.get(name, "")) for name in ("job", "out"))
    if not job or not out:
        raise RefusedError('--run-config must have job="FILE.json" and out="DIRECTORY"')
    run(read_job(Path(job)), GridExchange(grid), Path(out))
