"""Make up the spreadsheet of a small team: ten people guess the age on 40 photos, six on each.

As a European spreadsheet saves it: semicolons, decimal commas, Windows letters. One cell is N/A,
one row is there twice, one name has a space too many, and Jon says 30 whatever the photo shows.
Writes ages.csv.
"""

from pathlib import Path

import numpy as np

PEOPLE = ["Ann", "Björn", "Cem", "Dia", "Eve", "Fay", "Gus", "Hal", "Ida", "Jon"]

rng = np.random.default_rng(2)
noise = np.array([2, 2, 3, 3, 4, 4, 5, 6, 12, 0])
rows = ["Photo;Labeller Name;Estimated age"]
for photo in range(40):
    age = rng.uniform(18, 80)
    asked = [0, 1, 2, 3, 4, 9] if photo == 0 else sorted(rng.choice(10, 6, replace=False))
    for person in asked:
        guess = 30 if person == 9 else age + noise[person] * rng.standard_normal()
        rows.append(f"photo_{photo:02}.jpg;{PEOPLE[person]};{guess:.1f}".replace(".", ",", 2))
rows = [row.replace(",jpg", ".jpg") for row in rows]
rows[5] = rows[5].rpartition(";")[0] + ";N/A"
rows[2] = rows[2].replace("Björn", "Björn ")
rows.append(rows[1])
Path("ages.csv").write_text("\n".join(rows) + "\n", encoding="cp1252")
