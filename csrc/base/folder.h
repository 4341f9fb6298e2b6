/* Opens a folder so that no symbolic link of another user leads elsewhere.
 *
 * A process of root that works in the folder of another user must not leave it, even if that user replaces a folder by
 * a link meanwhile. So each folder on the way is opened relative to the one before. A link is followed only if
 * root or the user of this process made it. For users other than root, links in the path that an operator gave are
 * resolved before (symlinks.py).
 */
#ifndef BS_FOLDER_H
#define BS_FOLDER_H

#include <errno.h>

/* Returned for a link that belongs to another user. */
#define BS_UNTRUSTED_LINK (-EREMCHG)

/* A descriptor for reading, to be used as dir_fd, or a negative errno. */
int bs_open_folder(const char *path);

/* Opens a file of a folder for reading; `flags` are added to O_RDONLY. If the file is a symbolic link, the same rule
 * holds for it and for each link on the way to its target. A descriptor or a negative errno. */
int bs_open_linked(int dir_fd, const char *name, int flags);

#endif
