"""The sample world as a site of linked pages, with questions that need one to four of them."""
