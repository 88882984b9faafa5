"""Make up a batch of Mechanical Turk: 40 people guess the age on 200 photos, five on each.

Most look, some look closely, two do not. Writes batch.csv, gold.csv (20 ages that are known) and
truth.csv (all ages, which nobody has in real life).
"""

import csv
from pathlib import Path

import numpy as np

N_PHOTOS, PER_PHOTO, N_WORKERS = 200, 5, 40

rng = np.random.default_rng(7)
age = rng.uniform(18, 80, N_PHOTOS)
noise = rng.choice([2.0, 5.0, 12.0], N_WORKERS, p=[0.3, 0.5, 0.2])

# Deal the photos out: five people on each, every eight photos the whole crowd once.
dealt = np.concatenate(
    [rng.permutation(N_WORKERS) for _ in range(N_PHOTOS * PER_PHOTO // N_WORKERS)]
)

rows = []
for photo in range(N_PHOTOS):
    for worker in dealt[photo * PER_PHOTO : (photo + 1) * PER_PHOTO]:
        guess = age[photo] + noise[worker] * rng.standard_normal()
        if worker == 3:
            guess = 30  # whatever the photo shows
        if worker == 8:
            guess = rng.uniform(18, 80)  # did not look
        rows.append(
            {
                "HITId": f"3HIT{photo:03}",
                "AssignmentId": f"3ASG{photo:03}{worker:02}",
                "WorkerId": f"A{worker:02}",
                "AssignmentStatus": "Submitted",
                "Input.photo": f"photo_{photo:03}.jpg",
                "Answer.age": round(max(1, guess)),
                "Approve": "",
                "Reject": "",
            }
        )

with Path("batch.csv").open("w", newline="") as file:
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(rows)
for name, known in (("truth.csv", range(N_PHOTOS)), ("gold.csv", range(0, N_PHOTOS, 10))):
    with Path(name).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["task", "value"])
        writer.writerows([f"photo_{photo:03}.jpg", round(age[photo], 1)] for photo in known)
