/** What makes the page work without a network. */

/**
 * Waits until the service worker answers for the page, so that all that is loaded from then
 * on is kept. Where there is none, as on a server without TLS, the page works without.
 *
 * @returns {Promise<void>}
 */
export async function startServiceWorker() {
  const { serviceWorker } = navigator;
  if (!serviceWorker) return;
  const controlled = new Promise((resolve) => {
    serviceWorker.addEventListener("controllerchange", resolve, { once: true });
  });
  try {
    await serviceWorker.register("service_worker.js");
    // After a reload past the cache (with Shift) it never answers.
    const late = new Promise((resolve) => setTimeout(resolve, 2000));
    if (!serviceWorker.controller) await Promise.race([controlled, late]);
  } catch (error) {
    console.warn("The page will not work without a network:", error);
  }
}
