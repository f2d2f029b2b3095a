// Memory that goes back to the system when it is freed.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>
#if defined(__GLIBC__)
#include <malloc.h>
#endif
#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

namespace megalabel {

// After a step that took much memory: glibc keeps what threads have freed for themselves, where
// the next step, on other threads and in other sizes, may find no use for it. Takes milliseconds.
inline void give_back_memory() {
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}

// For vectors of numbers, whose first lies at a multiple of `alignment` bytes. Large ones have
// pages of their own, which are given back at once and of which those count that are written to: so
// numbers that are not given are left as they are, not set to zero.
template <class T, std::size_t alignment = 64>
struct Pages {
    using value_type = T;
    template <class U>
    struct rebind {
        using other = Pages<U, alignment>;
    };

    Pages() = default;
    template <class U>
    Pages(const Pages<U, alignment>&) {}

    T* allocate(std::size_t n) {
        const std::size_t bytes = n * sizeof(T);
#if __has_include(<sys/mman.h>)
        if (bytes >= large) {
            void* p =
                mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (p == MAP_FAILED) throw std::bad_alloc();
            return static_cast<T*>(p);
        }
#endif
        return static_cast<T*>(::operator new(bytes, std::align_val_t(alignment)));
    }

    void deallocate(T* p, [[maybe_unused]] std::size_t n) {
#if __has_include(<sys/mman.h>)
        if (n * sizeof(T) >= large) {
            munmap(p, n * sizeof(T));
            return;
        }
#endif
        ::operator delete(p, std::align_val_t(alignment));
    }

    template <class U>
    void construct(U* p) {
        ::new (static_cast<void*>(p)) U;
    }
    template <class U, class... Values>
    void construct(U* p, Values&&... values) {
        ::new (static_cast<void*>(p)) U(std::forward<Values>(values)...);
    }

    bool operator==(const Pages&) const { return true; }

  private:
    static constexpr std::size_t large = std::size_t{1} << 20;
};

template <class T>
using Paged = std::vector<T, Pages<T>>;

}  // namespace megalabel
