"""What each worker and API does before its first job: the fork server does it for all of them.

Families are imported when a job needs them, and SQLAlchemy configures the mappers at the first
statement: 1 s of a core in each process, more than a job of these tests takes.
"""

from sqlalchemy.orm import configure_mappers

from workers.families.base import every

list(every())
configure_mappers()
