"""Write the report of a run as one HTML file that needs no server, no script and no network."""

from ._report import report_html as report_html
from ._report import write_report as write_report
