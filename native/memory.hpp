// What is freed goes back to the system.
#pragma once

#include <cstdlib>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace megalabel {

// After a step that took much memory: glibc keeps what threads have freed for themselves, where
// the next step, on other threads and in other sizes, may find no use for it. Takes milliseconds.
inline void give_back_memory() {
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}

}  // namespace megalabel
