/* Error texts of glibc, which readers of our messages know, whatever C library we are linked with. */
#ifndef TVSNAP_ERROR_TEXT_H
#define TVSNAP_ERROR_TEXT_H

#include <errno.h>
#include <string.h>

static inline const char *error_text(int error) {
    switch (error) { /* those that differ in musl */
    case ECHILD: return "No child processes";
    case EIO: return "Input/output error";
    case ENOMEM: return "Cannot allocate memory";
    case EMFILE: return "Too many open files";
    case ENFILE: return "Too many open files in system";
    case EBUSY: return "Device or resource busy";
    case EXDEV: return "Invalid cross-device link";
    case ENOTTY: return "Inappropriate ioctl for device";
    case ENAMETOOLONG: return "File name too long";
    case ENOSYS: return "Function not implemented";
    case ELOOP: return "Too many levels of symbolic links";
    case EOVERFLOW: return "Value too large for defined data type";
    case EOPNOTSUPP: return "Operation not supported";
    case EADDRINUSE: return "Address already in use";
    case ETIMEDOUT: return "Connection timed out";
    case ESPIPE: return "Illegal seek";
    case EUSERS: return "Too many users";
    case ENODATA: return "No data available";
    case EUCLEAN: return "Structure needs cleaning";
    case EDQUOT: return "Disk quota exceeded";
    case ESTALE: return "Stale file handle";
    default: return strerror(error);
    }
}

#endif
