/* The CUresult codes that the stand-in gives. */
#ifndef STASIS_RESULT_H
#define STASIS_RESULT_H

enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    OPERATING_SYSTEM = 304,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    NOT_READY = 600,
    NOT_SUPPORTED = 801,
};

#endif
