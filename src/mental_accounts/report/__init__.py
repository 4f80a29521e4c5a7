"""Study folders -> statistics, figures and pages."""
