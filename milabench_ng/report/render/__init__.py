"""What is printed, as statements and tables, and the forms that lay it out."""
