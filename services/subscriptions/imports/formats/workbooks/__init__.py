"""Reads Excel workbooks in a confined child process.

Only the child process may load ``python_calamine``, because the library builds a dense table of all
cells between the first and the last cell of a sheet. A valid file of 2 KB can therefore use up the
memory of a process. The child process measures each sheet before it loads the sheet.
"""
