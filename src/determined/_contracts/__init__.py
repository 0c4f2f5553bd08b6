"""What training processes and the platform agree on: file names, formats, the home.

Values and pure functions only, because both sides import them; one file per subject, in any order.
"""
