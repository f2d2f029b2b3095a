// A small thread pool and the one loop that every kernel uses.
//
// parallel_for(n, grain, body) calls body(begin, end) on pieces of [0, n), dynamically scheduled.
// The calling thread works too, and between its pieces it lets Python handle signals, so Ctrl-C
// stops a loop within one piece; pieces that take long call end_if_cancelled() now and then. The
// first exception thrown by any piece cancels the rest and is rethrown to the caller. A forked
// child starts with a fresh pool; a loop that was going on cannot go on there, as its helpers are
// gone, and throws. Thread-safe; calls made from inside a body run inline, in the same pieces.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

// Kernels marked MEGALABEL_CLONES are compiled for several instruction sets; the loader picks,
// before the thread sanitizer is ready for it.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_THREAD__)
#define MEGALABEL_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MEGALABEL_CLONES
#endif

namespace megalabel {

// Set by the bindings: throws if Python has a pending signal. Called without the GIL, and only on
// signal_thread: no other thread may handle signals, and one that asks for the GIL while the
// interpreter is shutting down is ended on the spot. Plain values, which outlive static
// destructors.
inline void (*check_signals)() = [] {};
inline std::atomic<pthread_t> signal_thread{pthread_self()};

// The processors this process may run on: fewer than the machine's under taskset or in a container.
inline int available_processors() {
#ifdef __linux__
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
#endif
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

// MEGALABEL_THREADS where it is set, otherwise one thread a processor.
inline int initial_threads() {
    const char* wanted = std::getenv("MEGALABEL_THREADS");
    if (wanted == nullptr || *wanted == '\0') return available_processors();
    std::string_view text(wanted);
    int count = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error != std::errc{} || end != text.data() + text.size() || count < 1)
        throw std::invalid_argument(
            "MEGALABEL_THREADS must be a whole number of at least 1, not '" + std::string(text) +
            "'");
    return count;
}

// The memory nodes of this machine. MEGALABEL_NODES may say another number, of which processors
// then belong to each by turns.
inline std::size_t memory_nodes() {
    static const std::size_t count = [] {
        std::size_t nodes = 1;
        if (const char* wanted = std::getenv("MEGALABEL_NODES")) {
            const std::string_view text(wanted);
            std::from_chars(text.data(), text.data() + text.size(), nodes);
        } else if (std::ifstream online("/sys/devices/system/node/online"); online) {
            // "0" or "0-3" or "0,2": the last number is the highest
            for (std::size_t last = 0; online >> last; online.ignore()) nodes = last + 1;
        }
        return std::clamp<std::size_t>(nodes, 1, 64);
    }();
    return count;
}

// The memory node of the processor that this thread is on.
inline std::size_t memory_node() {
    if (memory_nodes() == 1) return 0;
    unsigned processor = 0, node = 0;
#if defined(__linux__)
    if (::getcpu(&processor, &node) != 0) return 0;
#endif
    return (std::getenv("MEGALABEL_NODES") ? processor : node) % memory_nodes();
}

class ThreadPool {
  public:
    static ThreadPool& instance() {
        std::lock_guard lock(instance_mutex_);
        if (instance_ == nullptr) instance_ = new ThreadPool;
        return *instance_;
    }

    // In a forked child the workers are gone and the locks may be held: start anew.
    static void forget() {
        new (&instance_mutex_) std::mutex;
        instance_ = nullptr;
        ++forks_;
        inside_body() = false;
        signal_thread = pthread_self();  // the thread that forked is Python's main thread now
    }

    static std::atomic<int>& threads() {
        static std::atomic<int> count{initial_threads()};
        return count;
    }

    static bool& inside_body() {
        thread_local bool inside = false;
        return inside;
    }

    struct Job;

    // The loop of which this thread works on a piece.
    static Job*& current() {
        thread_local Job* job = nullptr;
        return job;
    }

    static constexpr auto patience = std::chrono::milliseconds(50);  // between looks at signals

    struct Job {
        std::size_t n, grain;
        std::function<void(std::size_t, std::size_t)> body;
        std::atomic<std::size_t> next{0};
        std::atomic<bool> cancelled{false};
        std::mutex mutex;
        std::condition_variable idle;
        int running = 0;
        std::exception_ptr error;
        const int forks = forks_;

        // Claims and runs one piece; false when there is none left.
        bool step() {
            if (cancelled.load(std::memory_order_relaxed)) return false;
            std::size_t begin = next.fetch_add(grain, std::memory_order_relaxed);
            if (begin >= n) return false;
            current() = this;
            try {
                body(begin, std::min(n, begin + grain));
            } catch (...) {
                current() = nullptr;
                if (forks != forks_) throw;  // in a forked child: see handle_signals below
                fail(std::current_exception());
            }
            current() = nullptr;
            return true;
        }

        void fail(std::exception_ptr reason) {
            std::lock_guard lock(mutex);
            if (!error) error = std::move(reason);
            cancelled.store(true, std::memory_order_relaxed);
        }
    };

    void run(const std::shared_ptr<Job>& job, int helpers) {
        if (helpers > 0) {
            std::lock_guard lock(mutex_);
            hire(helpers);
            queue_.insert(queue_.end(), static_cast<std::size_t>(helpers), job);
            wake_.notify_all();
        }
        const bool signals = pthread_equal(pthread_self(), signal_thread);
        auto handle_signals = [&] {
            if (!signals) return;
            std::exception_ptr error;
            try {
                check_signals();
            } catch (...) {
                error = std::current_exception();
            }
            // A signal handler may fork. In the child the helpers' pieces are lost, and any lock
            // may be held by a thread that is no more: leave without touching one.
            if (job->forks != forks_ && !error)
                throw std::runtime_error("a native loop cannot go on in a forked process");
            if (job->forks != forks_) std::rethrow_exception(std::move(error));
            if (error) job->fail(std::move(error));
        };
        inside_body() = true;
        auto checked = std::chrono::steady_clock::now();
        while (job->step()) {
            auto now = std::chrono::steady_clock::now();
            if (now - checked < patience) continue;
            checked = now;
            handle_signals();
        }
        inside_body() = false;
        if (helpers > 0) {
            // Helpers that never started must not find the job later.
            std::lock_guard lock(mutex_);
            std::erase(queue_, job);
        }
        std::unique_lock lock(job->mutex);
        while (!job->idle.wait_for(lock, patience, [&] { return job->running == 0; })) {
            lock.unlock();
            handle_signals();
            lock.lock();
        }
        // Taken out of the job, which a helper may be the last to let go of: a Python exception
        // must not end in a thread that Python does not know.
        auto error = std::exchange(job->error, nullptr);
        lock.unlock();
        if (error) std::rethrow_exception(std::move(error));
    }

    // Ends a piece, by an exception, whose loop has been cancelled; lets Python handle signals.
    static void end_if_cancelled() {
        Job* job = current();
        if (job == nullptr) return;
        if (job->cancelled.load(std::memory_order_relaxed))
            throw std::runtime_error("the loop was cancelled");  // the first error is the one kept
        thread_local std::chrono::steady_clock::time_point checked;
        auto now = std::chrono::steady_clock::now();
        if (now - checked < patience || !pthread_equal(pthread_self(), signal_thread)) return;
        checked = now;
        check_signals();
        if (job->forks != forks_)
            throw std::runtime_error("a native loop cannot go on in a forked process");
    }

  private:
    // Never destroyed: at exit its workers still wait on it.
    static inline ThreadPool* instance_ = nullptr;
    static inline std::mutex instance_mutex_;
    static inline int forks_ = 0;  // between this process and the one that loaded the library

    // Starts workers until there are enough. Where the system refuses more threads, those that are
    // there do: the calling thread alone can finish any job.
    void hire(int wanted) {
        try {
            for (; workers_ < wanted; ++workers_) std::thread([this] { work(); }).detach();
        } catch (const std::system_error&) {
        }
    }

    void work() {
        inside_body() = true;
        for (;;) {
            std::shared_ptr<Job> job;
            {
                std::unique_lock lock(mutex_);
                wake_.wait(lock, [&] { return !queue_.empty(); });
                job = std::move(queue_.front());
                queue_.pop_front();
                std::lock_guard job_lock(job->mutex);
                ++job->running;
            }
            while (job->step()) {
            }
            std::lock_guard lock(job->mutex);
            if (--job->running == 0) job->idle.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::shared_ptr<Job>> queue_;
    int workers_ = 0;
};

inline const int fork_handler = pthread_atfork(nullptr, nullptr, ThreadPool::forget);

inline void end_if_cancelled() { ThreadPool::end_if_cancelled(); }

// The number of workers a loop over n items in pieces of grain would use at most.
inline int loop_threads(std::size_t n, std::size_t grain) {
    std::size_t pieces = n == 0 ? 0 : (n - 1) / std::max<std::size_t>(grain, 1) + 1;
    return static_cast<int>(
        std::max<std::size_t>(1, std::min<std::size_t>(pieces, ThreadPool::threads().load())));
}

template <class Body>
void parallel_for(std::size_t n, std::size_t grain, Body&& body) {
    if (n == 0) return;
    grain = std::clamp<std::size_t>(grain, 1, n);
    if (ThreadPool::inside_body()) {
        for (std::size_t begin = 0; begin < n;) {
            std::size_t end = begin + std::min(grain, n - begin);
            body(begin, end);
            begin = end;
        }
        return;
    }
    auto job = std::make_shared<ThreadPool::Job>();
    job->n = n;
    job->grain = grain;
    job->body = [&body](std::size_t begin, std::size_t end) { body(begin, end); };
    ThreadPool::instance().run(job, loop_threads(n, grain) - 1);
}

}  // namespace megalabel
