"""The beginning of the configuration of an Apache that serves port 8080."""

HEAD = """ServerRoot {folder}
PidFile {folder}/apache.pid
ServerName page.test
Listen 8080
{modules}
User www-data
Group www-data
ErrorLog {folder}/error.log
"""
