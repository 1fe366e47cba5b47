"""What tests share: fabrics, planted mistakes, servers, disks that fail, and readers of pages."""
