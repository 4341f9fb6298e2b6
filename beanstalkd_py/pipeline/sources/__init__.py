"""What both file sources share: columns, options, paths, filters, partitions and streams."""
