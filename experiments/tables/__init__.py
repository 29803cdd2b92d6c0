"""Tables: what Ind-KNN, its references and its rivals make of records about people."""
