"""What a run tells of itself: metrics, progress, profiles and where its time went."""
