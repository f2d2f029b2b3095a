// A small thread pool and the one loop that every kernel uses.
//
// parallel_for(n, grain, body) calls body(begin, end) on pieces of [0, n), dynamically scheduled.
// The calling thread works too, and between its pieces it lets Python handle signals, so Ctrl-C
// stops a loop within one piece. The first exception thrown by any piece cancels the rest and is
// rethrown to the caller. A forked child starts with a fresh pool. Thread-safe; calls made from
// inside a body run inline.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

// Kernels marked MEGALABEL_CLONES are compiled for several instruction sets; the loader picks.
#if defined(__x86_64__) && defined(__gnu_linux__)
#define MEGALABEL_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MEGALABEL_CLONES
#endif

namespace megalabel {

// Set by the bindings: throws if Python has a pending signal. Called without the GIL.
inline std::function<void()> check_signals = [] {};

class ThreadPool {
  public:
    static ThreadPool& instance() {
        static std::once_flag registered;
        std::call_once(registered, [] { pthread_atfork(nullptr, nullptr, forget); });
        std::lock_guard lock(instance_mutex());
        auto*& pool = pointer();
        if (pool == nullptr) pool = new ThreadPool;
        return *pool;
    }

    static std::atomic<int>& threads() {
        static std::atomic<int> count{static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
        return count;
    }

    static bool& inside_body() {
        thread_local bool inside = false;
        return inside;
    }

    struct Job {
        std::size_t n, grain;
        std::function<void(std::size_t, std::size_t)> body;
        std::atomic<std::size_t> next{0};
        std::atomic<bool> cancelled{false};
        std::mutex mutex;
        std::condition_variable idle;
        int running = 0;
        std::exception_ptr error;

        // Claims and runs one piece; false when there is none left.
        bool step() {
            if (cancelled.load(std::memory_order_relaxed)) return false;
            std::size_t begin = next.fetch_add(grain, std::memory_order_relaxed);
            if (begin >= n) return false;
            try {
                body(begin, std::min(n, begin + grain));
            } catch (...) {
                fail(std::current_exception());
            }
            return true;
        }

        void fail(std::exception_ptr reason) {
            std::lock_guard lock(mutex);
            if (!error) error = std::move(reason);
            cancelled.store(true, std::memory_order_relaxed);
        }
    };

    void run(const std::shared_ptr<Job>& job, int helpers) {
        {
            std::lock_guard lock(mutex_);
            while (static_cast<int>(workers_.size()) < helpers) {
                workers_.emplace_back([this] { work(); }).detach();
            }
            for (int i = 0; i < helpers; ++i) queue_.push_back(job);
        }
        wake_.notify_all();
        inside_body() = true;
        auto checked = std::chrono::steady_clock::now();
        while (job->step()) {
            auto now = std::chrono::steady_clock::now();
            if (now - checked < std::chrono::milliseconds(50)) continue;
            checked = now;
            try {
                check_signals();
            } catch (...) {
                job->fail(std::current_exception());
            }
        }
        inside_body() = false;
        {
            // Helpers that never started must not find the job later.
            std::lock_guard lock(mutex_);
            std::erase(queue_, job);
        }
        std::unique_lock lock(job->mutex);
        job->idle.wait(lock, [&] { return job->running == 0; });
        if (job->error) std::rethrow_exception(job->error);
    }

  private:
    static std::mutex& instance_mutex() {
        static auto* mutex = new std::mutex;
        return *mutex;
    }
    static ThreadPool*& pointer() {
        static ThreadPool* pool = nullptr;
        return pool;
    }
    // In a forked child the workers are gone and the locks may be held: start anew.
    static void forget() {
        new (&instance_mutex()) std::mutex;
        pointer() = nullptr;
        inside_body() = false;
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
    std::vector<std::thread> workers_;
};

// The number of workers a loop over n items in pieces of grain would use at most.
inline int loop_threads(std::size_t n, std::size_t grain) {
    std::size_t pieces = (n + grain - 1) / std::max<std::size_t>(grain, 1);
    return static_cast<int>(
        std::max<std::size_t>(1, std::min<std::size_t>(pieces, ThreadPool::threads().load())));
}

template <class Body>
void parallel_for(std::size_t n, std::size_t grain, Body&& body) {
    grain = std::max<std::size_t>(grain, 1);
    if (n == 0) return;
    if (ThreadPool::inside_body()) {
        body(std::size_t{0}, n);
        return;
    }
    auto job = std::make_shared<ThreadPool::Job>();
    job->n = n;
    job->grain = grain;
    job->body = [&body](std::size_t begin, std::size_t end) { body(begin, end); };
    ThreadPool::instance().run(job, loop_threads(n, grain) - 1);
}

}  // namespace megalabel
