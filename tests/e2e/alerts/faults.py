"""One real fault for each alert, and its remedy, in the order in which they are planted."""

from tests.e2e.alerts import of_disk, of_log, of_processes, of_requests

# The log's last ones need a witness, which the others do not have.
PLANTED = [*of_processes.FAULTS, *of_requests.FAULTS, *of_disk.FAULTS, *of_log.FAULTS]
