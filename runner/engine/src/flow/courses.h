// Events of many courses, in each of which they come in the order of their times: what arrives over one link
// after the other. Only the first of each course is kept in order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chakrascope::engine::flow {

class Courses {
  public:
    explicit Courses(std::size_t courses) : courses_(courses) {}

    struct Event {
        std::int64_t time;
        std::uint64_t order;  // of events added before
        std::uint32_t course;
        std::uint32_t number;
    };

    bool empty() const { return heads_.empty(); }
    std::int64_t first_time() const { return heads_.front().time; }

    // Not before what the course holds already; at once otherwise.
    void add(std::uint32_t course, std::int64_t time, std::uint32_t number) {
        Course& items = courses_[course];
        if (items.count > 0) time = std::max(time, items.last);
        items.last = time;
        const Item item{time, added_++, number};
        if (items.count == 0) {
            heads_.push_back({item.time, item.order, course});
            std::push_heap(heads_.begin(), heads_.end(), later);
        }
        items.push(item);
    }

    // Of one time, the one that was added first.
    Event take() {
        const Head head = heads_.front();
        Course& items = courses_[head.course];
        const Item item = items.front();
        items.pop();
        if (items.count == 0) {
            std::pop_heap(heads_.begin(), heads_.end(), later);
            heads_.pop_back();
        } else {
            sink({items.front().time, items.front().order, head.course});
        }
        return {item.time, item.order, head.course, item.number};
    }

  private:
    struct Item {
        std::int64_t time;
        std::uint64_t order;
        std::uint32_t number;
    };
    struct Head {
        std::int64_t time;
        std::uint64_t order;
        std::uint32_t course;
        bool before(const Head& other) const {
            return time != other.time ? time < other.time : order < other.order;
        }
    };
    // First in, first out, in an array that grows.
    struct Course {
        std::vector<Item> items;
        std::size_t first = 0;
        std::size_t count = 0;
        std::int64_t last = 0;

        const Item& front() const { return items[first]; }
        void push(const Item& item) {
            if (count == items.size()) grow();
            items[(first + count++) & (items.size() - 1)] = item;
        }
        void pop() {
            first = (first + 1) & (items.size() - 1);
            --count;
        }
        void grow() {
            std::vector<Item> larger(std::max<std::size_t>(4, 2 * items.size()));
            for (std::size_t i = 0; i < count; ++i) larger[i] = items[(first + i) & (items.size() - 1)];
            items.swap(larger);
            first = 0;
        }
    };

    static bool later(const Head& a, const Head& b) { return b.before(a); }

    // Put it in the place of the first head and move it down to where it belongs.
    void sink(const Head& moving) {
        const std::size_t count = heads_.size();
        std::size_t place = 0;
        for (std::size_t child = 1; child < count; child = 2 * place + 1) {
            if (child + 1 < count && heads_[child + 1].before(heads_[child])) ++child;
            if (!heads_[child].before(moving)) break;
            heads_[place] = heads_[child];
            place = child;
        }
        heads_[place] = moving;
    }

    std::vector<Course> courses_;
    std::vector<Head> heads_;  // a heap
    std::uint64_t added_ = 0;
};

}  // namespace chakrascope::engine::flow
