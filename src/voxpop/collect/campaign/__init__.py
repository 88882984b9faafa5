"""Campaign: answers that come one by one, what is known at any time, and what to ask for next."""

from voxpop.collect.campaign.board import Board as Board
from voxpop.collect.campaign.campaign import Campaign as Campaign
from voxpop.collect.campaign.next_batch import Batch as Batch
from voxpop.collect.campaign.next_batch import Rules as Rules
