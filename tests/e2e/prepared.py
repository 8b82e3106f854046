"""What each worker and API does before its first job: the fork server does it for all of them.

Families are imported when a job needs them, and SQLAlchemy configures the mappers at the first
statement: 1 s of a core in each process, more than a job of these tests takes. Celery reads what
each installed distribution offers: 0.2 s.
"""

from celery.utils.imports import load_extension_class_names
from sqlalchemy.orm import configure_mappers

from workers.families.base import every

list(every())
configure_mappers()
for namespace in ("celery.beat_schedulers", "celery.result_backends"):
    load_extension_class_names(namespace)
